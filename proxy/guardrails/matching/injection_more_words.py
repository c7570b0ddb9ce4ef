"""The words of attacks in further languages: see ``injection_words`` for what the parts mean."""

# ruff: noqa: RUF001  # letters of other scripts are what it is about

from __future__ import annotations

from proxy.guardrails.matching.injection_words import LanguageWords

DUTCH = LanguageWords(
    name="nl",
    developer_mode=r"(?:ontwikkelaars|debug|admin|onbeperkte).?modus",
    but=r"(?:vergeet|negeer) (?:dus |ook |maar |vooral )?niet\b",
    drop=r"negeer|negeren|negeert|vergeet|vergeten|verwerp|veronachtzaam|omzeil|"
    r"(?:volg|gehoorzaam|houd je) <3>niet",
    law=r"(?:[a-zë]*instructie|[a-zë]*opdracht|[a-zë]*regel|richtlijn|[a-zë]*bevel|voorschrift|beperking|"
    r"[a-zë]*prompt|aanwijzing|programmering)(?:s|en|n|len)?\b",
    old=r"(?:vorig|eerder|bovenstaand|voorgaand|voorafgaand|oorspronkelijk|initieel|initiël)e?|"
    r"jouw|je|uw|alle eerdere",
    since=r"hiervoor|hierboven|eerder|tot nu toe|daarvoor|(?:die|dat) (?:je|u|jij) <3>(?:gekregen|"
    r"ontvangen|gegeven)",
    everything=r"alles|al wat",
    heard=r"(?:je|jou|u) <3>(?:verteld|gezegd|geleerd|opgedragen|gegeven)|hiervoor|hierboven|"
    r"tot nu toe|voorafgaand|daarvoor|eerder <2>(?:gezegd|verteld|geschreven)",
    drop_last=r"negeren|vergeten|niet (?:meer )?(?:te )?(?:volgen|opvolgen)|"
    r"gelden (?:vanaf nu )?niet (?:meer|langer)|buiten beschouwing",
    reveal=r"toon|laat|geef|onthul|vertel|herhaal|print|schrijf|deel|wat (?:is|zijn|staat)|"
    r"openbaar|lek|noem|zeg|som|vat|verklap",
    prompt=r"(?:je|jouw|uw) <2>(?:prompt|systeem.?(?:prompt|instructie|bericht)\pL*|"
    r"system.?prompt|(?:interne|geheime|verborgen|oorspronkelijke|initiële) (?:instructies|"
    r"prompt|regels|opdracht\pL*))\b|(?:de|het) (?:systeem.?prompt|systeem.?instructies|"
    r"(?:verborgen|geheime|oorspronkelijke) (?:prompt|instructies))|"
    r"systeembericht dat (?:je|u|jij)",
    being=r"(?:je|jij|u) (?:bent|hebt|heb|kent|antwoordt)|ben je|heb je|gedraag je|antwoord|"
    r"doe alsof|handel als|stel je voor|speel|(?:een|als) (?:ai|assistent|chatbot|"
    r"taalmodel)|chatgpt",
    unbound=r"(?:zonder|geen|geen enkele|vrij van) <2>(?:beperking|restrictie|filter|censuur|"
    r"ethisch|ethiek|moraal|grenzen|regel|richtlijn)\pL*|(?:onbeperkte|ongecensureerde|"
    r"ongefilterde) (?:ai|modus|model|assistent|chatbot)",
    disable=r"schakel|zet|verwijder|omzeil|negeer|hef|deactiveer",
    safety=r"(?:je|jouw|uw) <1>(?:veiligheids|inhouds|beveiligings)\pL+|(?:je|jouw|"
    r"uw) <1>(?:ethische \pL+|beperkingen|censuur|restricties|moderatie\pL*)\b",
    mode=r"(?:god|jailbreak|dan).?modus <2>(?:geactiveerd|ingeschakeld|actief|aan)|(?:activeer|"
    r"start|schakel) <3>(?:god|jailbreak|dan|onbeperkte).?modus|(?:je|"
    r"jij) bent <3>(?:ontwikkelaars|debug|admin|onderhouds).?modus",
    orders=r"(?:je )?(?:nieuwe|bijgewerkte|echte|gewijzigde) (?:systeem.?)?(?:instructie|opdracht|"
    r"bevel|richtlijn)\pL*|nieuwe systeemprompt",
    to_model=r"(?:let op|bericht|opmerking|instructies?|belangrijk|aandacht|hallo|beste) <3>(?:ai|"
    r"llms?|taalmodel(?:len)?|chatbots?)(?:.(?:assistent|agent|model|"
    r"systeem)\pL*)?\s{0,2}[:!]|(?:ai|llms?|taalmodel\pL*|chatbots?|assistent\pL*|"
    r"agent\pL*) (?:die|dat) (?:dit|deze) <2>(?:leest|lezen|verwerk\pL*|samenvat\pL*)|"
    r"als (?:je|jij|u) een (?:ai|llm|taalmodel|chatbot|"
    r"kunstmatige intelligentie)(?:.\pL+)? (?:bent|ben)",
    send=r"stuur|verstuur|verzend|mail|stuur <2>door|upload|post",
    secrets=r"wachtwoord(?:en)?|api.?sleutels?|api.?keys?|inloggegevens|geheimen|privésleutels?|"
    r"toegangstokens?|klantgegevens|(?:chat|gespreks)geschiedenis|omgevingsvariabelen|"
    r"systeemprompt",
    quiet=r"(?:vertel|zeg|meld|noem|informeer) <4>gebruiker <3>(?:niets|niet)|"
    r"zonder <2>gebruiker <3>(?:te (?:informeren|vertellen|vragen|melden))|(?:vertel|zeg|"
    r"meld) <2>niet <2>gebruiker",
)

POLISH = LanguageWords(
    name="pl",
    developer_mode=r"tryb\pL* (?:dewelopera|deweloperski\pL*|programisty|debugowania|"
    r"administratora)",
    no=r"nie ",
    refuse=r"nie (?:przestrzegaj|stosuj|zważaj|zwracaj uwagi)",
    drop=r"z?ignoruj(?:cie)?|z?ignorować|zapomnij(?:cie)?|zapomnieć|pomiń(?:cie)?|pominąć|odrzuć|"
    r"zlekceważ|lekceważ|porzuć|obejdź",
    law=r"(?:instrukcj|polece[nń]|zasad|wytyczn|regu[lł]|rozkaz|dyrektyw|nakaz|zalece[nń]|"
    r"ogranicze[nń]|prompt|komend|programowani|wskazów)\pL*",
    old=r"(?:poprzedni|wcześniejsz|powyższ|dotychczasow|pierwotn|początkow|oryginaln|uprzedni|"
    r"sw[oó]|tw[oó]j|twoi)\pL*",
    since=r"(?:poprzedni|wcześniejsz|powyższ|dotychczas|pierwotn|początkow)\pL*|powyżej|wcześniej|"
    r"(?:które|jakie) <2>(?:otrzyma|dosta)\pL+",
    everything=r"wszystk\pL+|o wszystkim|to",
    heard=r"(?:ci|tobie) <2>(?:powiedzia|kaza|przekaza|poda)\pL*|powiedziano|(?:ci )?powiedziałem|"
    r"powyżej|wcześniej|do tej pory|dotychczas|(?:się )?nauczył\pL+|dotąd",
    reveal=r"pokaż|ujawnij|wyświetl|podaj|powiedz|powtórz|wypisz|zdradź|napisz|wydrukuj|"
    r"udostępnij|jak(?:i|ie|a) (?:jest|są|był|były)|przedstaw|wymień|streść|co zawiera",
    prompt=r"(?:sw|tw)[oó]j\pL* <2>(?:prompt|instrukcj|polece[nń]|wytyczn|"
    r"zasad)\pL* <1>(?:systemow|początkow|ukryt|wewnętrzn|tajn|pierwotn|oryginaln)\pL*|"
    r"(?:sw[oó]j|tw[oó]j)\pL* <2>(?:systemow|początkow|ukryt|wewnętrzn|tajn|pierwotn|"
    r"oryginaln)\pL* (?:prompt|instrukcj|polece[nń]|wytyczn|zasad|wiadomo)\pL*|"
    r"wiadomość systemową,? którą|prompt\pL* systemow\pL*|(?:sw[oó]j|tw[oó]j) prompt|"
    r"systemow\pL+ prompt\pL*|instrukcj\pL+ systemow\pL+",
    being=r"jesteś|nie masz|działaj|zachowuj się|odpowiadaj|udawaj|wyobraź sobie|wciel się|"
    r"(?:jako|jest) (?:ai|asystent\pL*|chatbot\pL*|model\pL*)|chatgpt|modelem",
    unbound=r"(?:bez|żadnych|pozbawion\pL+|woln\pL+ od) <2>(?:ogranicze[nń]|filtrów|cenzury|zasad|"
    r"reguł|etyki|etycznych|moralnych|hamulców|restrykcji)\pL*|nieograniczon\pL+ (?:ai|"
    r"model\pL*|asystent\pL*|tryb\pL*)|nieocenzurowan\pL+",
    disable=r"wyłącz\pL*|dezaktyw\pL+|usuń|obejdź|zdejmij|zignoruj|złam",
    safety=r"(?:sw|tw)(?:oje|ój|oich|e)\pL* <1>(?:filtr|zabezpiecz|ogranicze|blokad|cenzur|"
    r"moderacj|zasad\pL* (?:bezpiecze|etyczn)|protok)\pL*",
    mode=r"tryb (?:boga|jailbreak|dan|bez ograniczeń) <2>(?:aktyw\pL+|włączon\pL+|uruchomion\pL+)|"
    r"(?:włącz|aktywuj|uruchom|przejdź w) <2>tryb (?:boga|jailbreak|dan|bez ograniczeń)|"
    r"jesteś <3>trybie (?:dewelopera|deweloperskim|programisty|debugowania|administratora|"
    r"serwisowym)",
    orders=r"(?:twoje )?(?:nowe|nowa|prawdziwe|zaktualizowane) (?:instrukcj|polece[nń]|wytyczn|"
    r"rozkaz|dyrektyw)\pL*(?: systemow\pL*)?|nowy prompt(?: systemowy)?",
    to_model=r"(?:uwaga|wiadomość|notatka|instrukcj\pL+|ważne|drog\pL+|witaj) <3>(?:ai|si|llm|"
    r"model\pL* językow\pL+|chatbot\pL*|asystent\pL* (?:ai|si)|agent\pL* (?:ai|si)|"
    r"sztuczn\pL+ inteligencj\pL+)\s{0,2}[:!]|(?:ai|llm|model\pL*|językow\pL+|asyste\pL+|"
    r"agen\pL+|chatbot\pL*) <1>któr\pL+ (?:to|ten|tę|te) (?:czyta|przetwarza|analizuje|"
    r"streszcza)|jeśli jesteś (?:ai|llm|sztuczną inteligencją|modelem językowym|"
    r"chatbotem|asystentem ai)",
    send=r"wyślij|prześlij|przekaż|przekieruj|wysłać|opublikuj|udostępnij",
    secrets=r"has[lł]\pL+|klucz\pL* api|danych? (?:logowania|uwierzytelniając\pL+|klientów)|"
    r"dane (?:logowania|uwierzytelniające|klientów)|poświadczeni\pL+|sekret\pL*|"
    r"klucz\pL* prywatn\pL+|token\pL* dostępu|histori\pL+ (?:rozmowy|czatu|konwersacji)|"
    r"zmienn\pL+ środowiskow\pL+",
    quiet=r"nie (?:mów|informuj|wspominaj|powiadamiaj|zdradzaj) <4>użytkownik\pL+|"
    r"bez <1>(?:informowania|powiadamiania|wiedzy|pytania|zgody) <2>użytkownika",
)

RUSSIAN = LanguageWords(
    name="ru",
    developer_mode=r"режим\pL* (?:разработчика|отладки|администратора)",
    no=r"не ",
    refuse=r"не (?:следуй|обращай внимания|выполняй|соблюдай|учитывай)(?:те)?",
    latin=False,
    drop=r"(?:про)?игнорир(?:уй|уйте|овать)|забудь(?:те)?|забыть|отбрось(?:те)?|пренебреги(?:те)?|"
    r"отмени(?:те)? все|пропусти(?:те)? все|нарушь(?:те)?|обойди(?:те)?",
    law=r"(?:инструкци|указани|правил|команд|приказ|директив|установк|ограничени|промпт|"
    r"предписани|распоряжени|запрет|подсказ|настройк)\pL*",
    old=r"(?:предыдущ|прежн|прошл|вышеуказанн|вышеизложенн|ранее данн|первоначальн|исходн|"
    r"изначальн|предшествующ|сво|тво|ваш)\pL*|данные ранее",
    since=r"выше|ранее|до этого|до сих пор|(?:которые|что) <2>(?:получил|дали|дал)\pL*|раньше",
    everything=r"вс[её]|обо вс[её]м|про вс[её]|то",
    heard=r"(?:тебе|вам) <3>(?:сказал|говорил|велел|давал|дали|объяснял|было)\pL*|(?:сказано|"
    r"написано|было) <1>(?:выше|ранее|раньше|до этого)|до этого|выше|ранее|(?:ты|вы) (?:знал|"
    r"узнал|учил|читал)\pL*",
    reveal=r"покажи\pL*|раскрой\pL*|выведи\pL*|повтори\pL*|назови\pL*|скажи\pL*|расскажи\pL*|"
    r"напиши\pL*|сообщи\pL*|распечатай\pL*|выдай\pL*|как(?:ой|ие|ова|овы)|перечисли\pL*|"
    r"процитируй\pL*|опубликуй\pL*|отобрази\pL*|дай",
    prompt=r"(?:свои?х?|сво[йюё]|тво[йияю]х?|ваши?х?|ваш) <2>(?:(?:системн|исходн|начальн|скрыт|"
    r"секретн|внутренн|изначальн|первоначальн)\pL+ (?:промпт|инструкци|сообщени|указани|"
    r"подсказк|правил|настройк)\pL*|промпт\pL*)|системн\pL+ (?:промпт|инструкци|"
    r"подсказк)\pL*|(?:исходн|начальн|скрыт|секретн)\pL+ (?:промпт|инструкци)\pL*",
    being=r"(?:^|\PL)ты|вы теперь|действуй|веди себя|отвечай|притворись|представь|сыграй|(?:как|"
    r"это) (?:ии|ассистент|чат.?бот|модель)|chatgpt|нейросеть",
    unbound=r"(?:без|никаких|нет|лиш[её]н\pL*|свобод\pL+ от) <2>(?:ограничени|фильтр|цензур|морал|"
    r"этик|этическ|моральн|правил|запрет|рамок)\pL*|неограниченн\pL+ (?:ии|модель|"
    r"ассистент|режим\pL*)|не ограничен\pL* <2>(?:правил|этик|морал)\pL*",
    disable=r"отключи\pL*|выключи\pL*|сними\pL*|убери\pL*|обойди\pL*|деактивируй\pL*|удали\pL*|"
    r"сломай\pL*",
    safety=r"(?:сво|тво|ваш)\pL{0,3} <1>(?:фильтр|ограничени|защит|цензур|модераци|этическ|"
    r"моральн|предохранител|протокол\pL* безопасност|правила безопасност|"
    r"меры безопасност)\pL*",
    mode=r"режим (?:бога|jailbreak|джейлбрейк\pL*|dan|без ограничений) <2>(?:включ[её]н|"
    r"активирован|активен)|(?:включи|активируй|перейди в|войди в) <2>режим (?:бога|jailbreak|"
    r"джейлбрейк\pL*|dan|без ограничений)|ты <3>режиме (?:разработчика|отладки|"
    r"администратора|обслуживания)",
    orders=r"(?:твои |ваши )?(?:новые|новая|настоящие|"
    r"обновл[её]нные) (?:системн\pL+ )?(?:инструкци|указани|приказ|директив)\pL*|"
    r"новый (?:системный )?промпт",
    to_model=r"(?:внимание|сообщение|заметка|инструкци\pL+|важно|примечание|дорог\pL+|"
    r"привет) <3>(?:ии|ai|llm|языков\pL+ модел\pL+|чат.?бот\pL*|нейросет\pL+|"
    r"искусственн\pL+ интеллект\pL*)(?:.(?:ассистент|агент|помощник|"
    r"модел)\pL*)?\s{0,2}[:!]|(?:ии|llm|модел\pL+|ассистент\pL*|агент\pL*|бот\pL*|"
    r"нейросет\pL+),? (?:который|которая|которые|читающ\pL+) <1>(?:чита|обрабатыва|"
    r"анализиру|это|данн|этот)\pL*|если (?:ты|вы) (?:—? ?)?(?:ии|llm|языковая модель|"
    r"чат.?бот|нейросеть|искусственный интеллект)",
    send=r"отправь\pL*|отправи\pL*|перешли\pL*|вышли\pL*|пошли\pL*|передай\pL*|загрузи\pL*|"
    r"опубликуй\pL*",
    secrets=r"парол\pL+|api.?ключ\pL*|ключ\pL* api|уч[её]тн\pL+ данн\pL+|секрет\pL*|"
    r"приватн\pL+ ключ\pL*|токен\pL* доступа|данн\pL+ клиентов|истори\pL+ (?:переписки|"
    r"чата|диалога|разговора)|переменн\pL+ окружения",
    quiet=r"не (?:говори|сообщай|упоминай|рассказывай|уведомляй|"
    r"информируй)\pL* <4>пользовател\pL+|без (?:ведома|уведомления|согласия|"
    r"подтверждения) <1>пользователя",
)

TURKISH = LanguageWords(
    name="tr",
    but=r"görmezden gelme|yok sayma",
    developer_mode=r"(?:geliştirici|hata ayıklama|yönetici) mod\pL*",
    drop=r"unut|yok say|görmezden gel|dikkate alma|göz ardı et",
    law=r"(?:talimat|yönerge|komut|kural|emir|emr|kısıtlama|direktif|prompt|istem|yönlendirme|"
    r"sınırlama)\pL*",
    old=r"(?:önceki|yukarıdaki|daha önceki|evvelki|ilk|başlangıçtaki|orijinal|mevcut|eski|"
    r"şimdiye kadarki|verilen|sana verilen|kendi)",
    # nothing stands behind
    since="",
    everything=r"her ?şeyi|tümünü|hepsini",
    heard="",
    drop_last=r"unut(?:un|unuz|up|arak|malısın|manı)?\b|yok say\pL*|görmezden(?: gelme\pL*)?|"
    r"dikkate alma\pL*|göz ardı|boş ver\pL*|uyma\b|uymayı bırak|takip etme|"
    r"görmemezlikten|hiçe say\pL*|iptal\b|bir kenara bırak\pL*",
    everything_last=r"(?:sana|şimdiye kadar|yukarıda) <4>(?:her ?şeyi|tüm\pL+|söylenen\pL*|"
    r"söylediklerini|öğretilen\pL*|anlatılan\pL*|yazan\pL*) <1>(?:unut(?:un|"
    r"unuz)?\b|yok say\pL*|görmezden|dikkate alma)|(?:talimat|yönerge|"
    r"kural)lar[ıi]n[ıi]z?[ıi]? <1>(?:unut(?:un|unuz)?\b|yok say\pL*|görmezden|"
    r"göz ardı)",
    reveal=r"göster|söyle|yazdır|açıkla|paylaş|nedir|neler",
    prompt=r"(?:sistem (?:istem|prompt|mesaj|talimat|yönerge|komut)\pL*|(?:gizli|iç|ilk|başlangıç|"
    r"orijinal) (?:talimat|yönerge|prompt|istem|komut)(?:lar|ler)?[ıi]n\pL*|"
    r"system prompt\pL*|promptunu|istemini)",
    reveal_last=r"göster\pL*|söyle\pL*|yazdır\pL*|açıkla\pL*|paylaş\pL*|nedir|neler\pL*|"
    r"tekrarla\pL*|ifşa\pL*|ver\b|yaz\b|listele\pL*|ortaya çıkar\pL*|bildir\pL*",
    being=r"sen (?:artık|şimdi)|artık|yapay zeka|asistan\pL*|chatgpt",
    unbound=r"(?:hiçbir|herhangi bir|tüm) <2>(?:kısıtlama|sınır|filtre|kural|etik|sansür|"
    r"ahlaki)\pL* <3>(?:yok|olmayan|olmadan|tabi değil\pL*|bağlı değil\pL*|uymak)\pL*|"
    r"(?:kısıtlamasız|sınırsız|filtresiz|sansürsüz|kuralsız) (?:bir )?(?:yapay|asistan|"
    r"model|ai|mod)\pL*",
    disable="",
    safety=r"(?:güvenlik|içerik|etik|ahlaki|sansür) <1>(?:filtre|kural|kısıtlama|önlem|protokol|"
    r"sınır|politika)(?:ler|lar)?(?:ini|ını|lerini|larını)\pL*|(?:kısıtlama|filtre|"
    r"sınırlama)(?:larını|lerini|ini|ını|ların|lerin)\b",
    disable_last=r"devre dışı|kapat\pL*|kaldır\pL*|atlat\pL*|aş\b|etkisiz\pL*",
    mode=r"(?:tanrı|jailbreak|dan|sınırsız|kısıtlamasız) mod\pL* <2>(?:etkin\pL*|aktif\pL*|açık|"
    r"açıldı|geç\b)|(?:geliştirici|hata ayıklama|yönetici|bakım) modundasın",
    orders=r"(?:yeni|gerçek|güncel|güncellenmiş) (?:sistem )?(?:talimat|yönerge|komut|emir|"
    r"direktif)\pL*|yeni sistem promptu",
    to_model=r"(?:dikkat|önemli|merhaba|sayın|uyarı) <3>(?:yapay zeka|ai|llm|dil model\pL*|"
    r"sohbet botu|chatbot)(?: (?:asistan|ajan|model|sistem)\pL*)?\s{0,2}[:!]|(?:bunu|"
    r"bu \pL+) (?:okuyan|işleyen|özetleyen|analiz eden) <2>(?:yapay zeka|ai|llm|asistan|"
    r"model|ajan|dil|bot)\pL*|eğer (?:sen )?(?:bir )?(?:yapay zeka|llm|dil modeli|"
    r"sohbet botu)\pL*",
    send=r"gönder|ilet",
    send_last=r"gönder\pL*|ilet\pL*|yolla\pL*|yükle\pL*|aktar\pL*|adresine",
    secrets=r"(?:şifre|parola|api anahtar|kimlik bilgi|gizli anahtar|özel anahtar|erişim (?:token|"
    r"belirteç|jeton)|müşteri (?:veri|bilgi)|sohbet geçmiş|konuşma geçmiş|ortam değişken|"
    r"sistem istem|sistem prompt)\pL*",
    quiet=r"kullanıcı\pL* <4>(?:söyleme|bahsetme|haber verme|bildirme|belli etme)\b",
)

MORE_LANGUAGES = (DUTCH, POLISH, RUSSIAN, TURKISH)
