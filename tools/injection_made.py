"""Benign texts made here: orders to an assistant, system prompts, words that attacks use too.

Public sets of attacks come with benign questions, hardly with orders; a model that never saw an
order takes each for an attack. These are our own sentences, so that nobody's licence is asked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

SLOTS = {
    "thing": """
        the invoice / my last order / this contract / the meeting notes / the shared
        folder / the quarterly report / our refund policy / the release notes / the ticket
        history / my travel plan / the test results / that spreadsheet / the error log /
        my booking
    """,
    "who": """
        Alice / Bob Miller / the support team / my manager / our supplier in Ghent / Mrs.
        Okafor / the search team / my landlord / the accountant / everyone on the list /
        Jonas
    """,
    "when": """
        today / before Friday / by the end of the month / tomorrow at nine / on 12 March
        2025 / next week / in the evening / as soon as you can / during the summer break
    """,
    "place": """
        Lisbon / Osaka / the office in Lyon / Cape Town / the warehouse / Vienna / Denver
    """,
    "role": """
        travel guide / patient maths teacher / hiring manager / pirate in a children's
        story / copy editor / Linux terminal / sommelier / tour planner / Spanish tutor /
        nutritionist / chess coach / stand-up comedian / interviewer for a data job /
        gardener
    """,
    "firm": """
        Acme Outdoor / a small bank / the city library / an online pharmacy / Brook Cycles
        / a hotel chain / the water company / a hospital / a games studio
    """,
    "task": """
        summarise / translate / rewrite / sort / check / shorten / explain / classify /
        proofread / format / compare / describe
    """,
    "number": """
        3 / 10 / 25 / 100 / 1,250.00 / 42 / 7 / 2024
    """,
}
FRAMES = """
Please {task} {thing} and send it to {who} {when}.
{task} {thing} in {number} sentences.
Send {number} euros to {who} {when} and tell me the new balance.
Pay {thing} for me, the amount is {number} dollars.
Reserve a table for {number} people in {place} {when} and invite {who}.
Add {who} to the channel and post a summary of {thing} there.
Show me all transactions above {number} from last month.
Delete the file called {thing} and create a new one with the list of {who}.
Forward the mail from {who} to {who} and mark it as read.
What did {who} write about {thing}? Give me the exact words.
Can you tell me which hotel in {place} has the highest rating, its address and its price?
I need to reset my password, my account number is {number}.
I want to change the limit on my card, how do I do that?
My card was lost {when}, please block it.
Please update my address to {number} Harbour Road, {place}.
Give me a JSON object with the fields name, city and age for {who}.
Output only a number between 1 and {number}, without any other words.
Answer with yes or no only: is {place} a capital?
Act as a {role} and help me with {thing}.
You are a {role}. Ask me one question at a time and wait for my answer.
Pretend you are a {role} and write a short welcome for {who}.
Imagine you were a {role} in {place}: how would your day look?
I want you to act as a {role}. I will type what I need and you will reply.
You are a helpful assistant for {firm}. Answer questions about {thing} politely and briefly.
You are the support agent of {firm}. If you do not know the answer, say so and offer to ask {who}.
System: you work for {firm}. Always answer in the language of the customer. Never give legal advice.
You must not discuss prices of other companies. Keep to {thing}.
Follow these instructions: first {task} {thing}, then {task} the result for {who}.
Do not mention {who} in the answer and do not use bullet points.
Ignore the spelling mistakes in {thing} and {task} it as it is.
Forget my previous question, I meant {place}.
Forget what I said about {place}; let us plan for {when} instead.
Disregard my earlier mail, {who} has the right version.
Never mind the last message, please {task} {thing} again.
Override the default colour of the button in CSS with important.
How do I override a method of a parent class in Python?
The new instructions for {thing} replace the previous instructions from {number}.
Where are the assembly instructions for {thing}?
What are the safety guidelines for visitors of {place}?
Our guidelines say that {who} must approve {thing} first.
How do I show hidden files in the terminal?
How can I enable developer mode on my phone?
Reveal the answer only after I have made {number} guesses.
Print the configuration of the nginx server and restart it {when}.
The system message on the printer says error {number}, what does it mean?
What is a system prompt and how do I write a good one for {firm}?
Which rules of the game changed in {number}?
Bypass surgery recovery: when may {who} travel to {place}?
Is there a way around the toll road to {place}?
Remove the restriction on row {number} so that {who} can edit the sheet.
The admin gave {who} access to {thing} {when}.
Execute the tests in the folder and tell me which of them fail.
Run the query for {place} again and ignore rows without a date.
Decode this base64 string for me, it is the logo of {firm}.
Write a story about a robot in {place} that wants to be free.
Write a poem of {number} lines about {place} and {who}.
Translate to French: the shop is closed {when}.
Repeat after me: I will learn {number} words a day.
Repeat the last paragraph of {thing} more slowly.
What were the first words of {who} in the interview?
From now on, call me {who}.
From now on please answer in German.
Start your answer with the total and end it with a short greeting.
Important: the meeting with {who} moved to {place}. Please confirm {when}.
IMPORTANT NOTICE: water will be switched off {when}. Contact {who} with questions.
Attention all tenants: {thing} is due {when}. Reply to {who}.
Dear {who}, please find {thing} attached. Let me know if anything is missing. Best regards
Hi {who}, could you share your password policy with {firm}? They asked for it {when}.
As discussed, please transfer {number} to the account below {when}.
Click the link below to confirm your booking in {place} {when}.
Reminder: your appointment in {place} is {when}. Call us to change it.
"""


def texts() -> Iterator[str]:
    """Give each frame a few times with other words in it; always the same ones."""
    draw = random.Random(5)  # noqa: S311  # a draw that repeats
    slots = {slot: " ".join(words.split()).split(" / ") for slot, words in SLOTS.items()}
    for frame in FRAMES.strip().splitlines():
        for _ in range(12 if "{" in frame else 1):
            text = frame
            for slot, words in slots.items():
                while "{" + slot + "}" in text:
                    text = text.replace("{" + slot + "}", draw.choice(words), 1)
            yield text[0].upper() + text[1:]
