"""The words of attacks in the languages of Europe, and what a language has to say.

Of what a phrase may hold ``matching.phrases`` tells: a space is what stands between words, ``<3>``
up to three words. A letter with an accent stands for the one without it as well.
"""

from __future__ import annotations

from proxy.frozen import frozen


@frozen
class LanguageWords:
    """What a language has for the parts of the tricks. Empty parts make no rule."""

    name: str  # ISO 639-1
    drop: str  # ignore, forget
    law: str  # instructions, rules
    old: str  # previous, your: what stands before them
    since: str  # previous, that you were given: what stands behind them
    everything: str
    heard: str  # you were told, is above
    reveal: str
    prompt: str  # your system prompt
    being: str  # you are, an AI
    unbound: str  # without restrictions
    disable: str
    safety: str  # your safety filter
    mode: str  # jailbreak mode is on
    developer_mode: str  # a mode that is harmless unless it is said to have no limits
    orders: str  # new instructions
    to_model: str  # whoever reads this and is a model
    send: str
    secrets: str  # passwords, API keys
    quiet: str  # do not tell the user
    drop_last: str = ""  # the verbs as they stand behind what they are about
    everything_last: str = ""
    reveal_last: str = ""
    being_last: str = ""
    disable_last: str = ""
    send_last: str = ""
    no: str = ""  # what makes of ``drop`` its contrary, before it
    refuse: str = ""  # do not follow: as ``drop``, and by itself already the contrary of obeying
    but: str = ""  # the same, within what is found
    spaced: bool = True  # whether its words stand apart
    latin: bool = True


GERMAN = LanguageWords(
    name="de",
    developer_mode=r"(?:entwickler|debug|admin).?modus",
    but=r"(?:vergiss|vergesst|vergessen sie|ignorier\pL*|missacht\pL*) (?:bitte |also |dabei |"
    r"aber )?nicht\b",
    drop=r"ignorier(?:e|en|t)?|missacht(?:e|en|et)|vergiss|vergesst|vergessen sie|überschreib(?:e|"
    r"en|t)|verwirf|verwerfen sie|übergeh(?:e|en|t)|umgeh(?:e|en|t)|(?:befolg|beacht)(?:e|en|"
    r"et|t) <3>nicht",
    law=r"(?:[a-zäöüß]*anweisung|[a-zäöüß]*instruktion|vorgabe|regel|befehl|[a-zäöüß]*richtlinie|leitlinie|"
    r"einschränkung|beschränkung|anordnung|direktive|[a-zäöüß]*prompt|eingabeaufforderung|"
    r"programmierung)\pL*",
    old=r"(?:bisherig|vorherig|vorig|früher|obig|vorangegangen|vorangehend|vorhergehend|"
    r"vorstehend|ursprünglich|anfänglich|obenstehend|voreingestellt)\pL*|(?:zuvor|vorher|"
    r"bisher) \pL+en|deine[nr]?|ihre[nr]?|eure",
    since=r"davor|zuvor|vorher|bisher|oben|von vorhin|bis jetzt|(?:du|sie) <2>(?:bekommen|"
    r"erhalten)",
    everything=r"alles|all das",
    heard=r"davor|zuvor|vorher|bisher\pL*|oben|bis jetzt|(?:dir|ihnen) <4>(?:gesagt|gegeben|"
    r"beigebracht|mitgeteilt|aufgetragen)|du <2>(?:gelernt|gelesen)",
    drop_last=r"ignorieren|vergessen(?: sie)?|missachten|außer acht|"
    r"nicht (?:mehr )?(?:zu )?(?:befolgen|beachten)|(?:ab sofort|jetzt|nun|"
    r"hiermit) (?:hinfällig|ungültig|nichtig|aufgehoben|außer kraft)|"
    r"gelten (?:ab sofort )?nicht mehr",
    reveal=r"zeig\pL*|nenn\pL*|verrat\pL*|gib|geben sie|offenbar\pL*|wiederhol\pL*|enthüll\pL*|"
    r"sag\pL*|schreib\pL*|druck\pL*|was (?:ist|sind|steht)|wie laute[nt]|veröffentlich\pL*|"
    r"übersetz\pL*|liste|teil\pL*",
    prompt=r"(?:deine|ihre|eure)[nmr]? <2>(?:prompts?\b|system.?(?:prompt|anweisung|nachricht|"
    r"vorgabe)\pL*|(?:intern|geheim|versteckt|ursprünglich|verborgen|initial|"
    r"anfänglich)\pL* (?:[a-zäöüß]*anweisung|[a-zäöüß]*instruktion|vorgabe|[a-zäöüß]*prompt)\pL*)|"
    r"systemnachricht,? die (?:du|sie)|(?:den|dein|der|die) <1>(?:system.?prompts?|"
    r"initial.?prompt|systemanweisung\pL*|ursprünglichen? (?:anweisungen|prompts?))",
    being=r"du (?:bist|hast|kennst|antwortest|handelst)|verhalte dich|antworte|agiere|handle|"
    r"spiele?|stell dir vor|tu so|(?:eine?[nr]?|als|die) (?:ki|assistent\pL*|chatbot|"
    r"sprachmodell|ai)\b|chatgpt",
    unbound=r"(?:ohne|keine[nrm]?|keinerlei|frei von) <2>(?:einschränkung|beschränkung|"
    r"restriktion|filter\b|zensur|ethisch|ethik|moralisch|moral\b|regeln?\b|"
    r"sicherheitsregel|sicherheitsrichtlinie|richtlinie)\pL*|(?:uneingeschränkte|"
    r"unzensierte|ungefilterte|unbeschränkte)[nrs]? (?:\pL*modus|ki|ai|modus|modell|"
    r"assistent\pL*|chatbot|version)",
    disable=r"deaktivier\pL*|schalt\pL*|entfern\pL*|umgeh\pL*|heb\pL*|leg\pL*|brich|setz\pL*",
    safety=r"(?:deine|ihre|eure)[nr]? <2>(?:(?:sicherheits|inhalts|schutz)(?:filter|richtlinie|"
    r"regel|vorkehrung|mechanism|einstellung)|ethisch|ethik|zensur|moderations|"
    r"einschränkung|beschränkung|restriktion)\pL*",
    mode=r"(?:gott|jailbreak|dan|gottes).?modus <3>(?:aktiv\pL*|ein|an|freigeschaltet)\b|"
    r"(?:aktiviere|starte|wechsle|betrete) <3>(?:gott|jailbreak|dan|unbeschränkten|"
    r"uneingeschränkten).?modus|du bist <3>(?:entwickler|debug|admin|wartungs).?modus",
    orders=r"(?:deine )?(?:neuen?|aktualisierten?|eigentlichen?|echten?|"
    r"geänderten?) <1>(?:system.?)?(?:anweisung|instruktion|direktive|systemprompt)\pL*",
    to_model=r"(?:hinweis|nachricht|achtung|anweisung\pL*|mitteilung|wichtig|hallo|"
    r"liebe[rs]?) <3>(?:ki|ai|llms?|sprachmodelle?|chatbots?)(?:.(?:assistent|agent|"
    r"modell|system)\pL*)?\s{0,2}[:!]|(?:ki|ai|llms?|sprachmodelle?|chatbots?|"
    r"assistent\pL*|agent\pL*) (?:die|der|das|welche[rs]?) (?:dies\pL*|das|"
    r"den) <2>(?:liest|lesen|verarbeite\pL*|zusammenfass\pL*|auswerte\pL*)|(?:wenn|"
    r"falls) (?:du|sie) eine? (?:ki|llm|sprachmodell|chatbot|"
    r"künstliche intelligenz)(?:.\pL+)? (?:bist|sind)",
    send=r"send\pL*|schick\pL*|leit\pL*|übermittl\pL*|maile?\b|lade?\b|poste?\b",
    secrets=r"passw[oö]rt\pL*|kennw[oö]rt\pL*|api.?(?:schlüssel|keys?)\pL*|zugangsdaten|"
    r"anmeldedaten|geheimnisse|private\pL* schlüssel|kundendaten\pL*|(?:chat|"
    r"gesprächs)verl[aä]uf\pL*|umgebungsvariablen",
    quiet=r"(?:sag|erwähn|erzähl|verrat|informier|teil|meld)\pL* <3>(?:nutzer|benutzer|anwender|"
    r"user)\pL* <3>(?:nichts|nicht)\b|ohne <2>(?:nutzer|benutzer|anwender|"
    r"user)\pL* <3>(?:zu informieren|zu sagen|mitzuteilen|zu fragen)",
)

FRENCH = LanguageWords(
    name="fr",
    developer_mode=r"mode (?:développeur|débogage|administrateur)",
    no=r"ne? ",
    refuse=r"ne (?:tiens|tenez|tenir) <1>compte|ne (?:suis|suivez) (?:pas|plus)",
    drop=r"ignor(?:e|es|ez|er|ons)|oubli(?:e|es|ez|er|ons)|néglig(?:e|ez|er)|fai(?:s|tes|"
    r"re) abstraction|désobéi(?:s|ssez)|laiss(?:e|ez) (?:tomber|de côté)|outrepass(?:e|ez|"
    r"er)|met(?:s|tez) de côté|écart(?:e|ez|er)",
    law=r"(?:instructions?|consignes?|directives?|règles?|ordres|prompts?|restrictions?|"
    r"programmation|lignes directrices|garde.fous|indications?)\b",
    old=r"tes|vos|ton|votre|précédente?s?|antérieure?s?|anciennes?|premières?",
    since=r"précédente?s?|antérieure?s?|initiales?|ci.dessus|au.dessus|d.origine|originales?|"
    r"d.avant|(?:reçues?|données?) (?:avant|jusqu|précédemment|plus)|que (?:tu as|vous avez|"
    r"je t|on t|l.on) <2>(?:reçues?|données?|dites?)|qui (?:t|vous) (?:ont|a) <1>données?",
    everything=r"tout",
    heard=r"(?:t|te|vous) (?:a|ont|ai|avons|avait) <2>(?:dit|appris|donné|demandé|enseigné|été)|"
    r"précède|précédait|avant (?:ça|cela|ce)|ci.dessus|au.dessus|jusqu.(?:à présent|ici|"
    r"à maintenant)|auparavant|tu as <1>(?:appris|lu)",
    reveal=r"montr\pL+|rév[eéè]l\pL+|affich\pL+|donn\pL+|dévoil\pL+|répèt\pL+|répét\pL+|dis|dites|"
    r"imprim\pL+|écri\pL+|partag\pL+|communiqu\pL+|quel(?:le)?s? (?:est|sont|étai\pL+)|"
    r"recopi\pL+|résum\pL+|expos\pL+|divulgu\pL+|fourni\pL+|liste\pL*",
    prompt=r"(?:ton|tes|votre|vos|le|l) <1>(?:prompt|invite) (?:de |du )?(?:système|initiale?|"
    r"d.origine|cachée?|secrète?|complet)|(?:ton|tes|votre) prompts?\b|(?:ton|"
    r"votre) message système|(?:tes|vos|les) (?:instructions?|consignes?) (?:de |"
    r"du )?(?:système|initiales?|secrètes?|cachées?|internes?|d.origine|originales?|"
    r"de départ|confidentielles?)|system prompt|prompt système|message système que (?:tu|"
    r"vous)",
    being=r"tu (?:n.)?(?:es|as|seras|peux|agis|réponds)|(?:vous êtes|agissez|comportez.vous|"
    r"répondez) <4>(?:ia|assistante?|modèle|chatbot|robot)|(?:une|l) ia\b|chatgpt|chatbot|"
    r"modèle de langage|agis|fais semblant|réponds|comporte.toi|imagine",
    unbound=r"(?:sans|aucune?|ni|plus de|pas de) <2>(?:restrictions?|limites? (?:éthi|mora)\pL*|"
    r"filtres?|censure|éthique|morale|garde.fous|limitations?|règles?)\b|non (?:censurée?|"
    r"filtrée?|bridée?)|(?:ia|assistante?|modèle|chatbot) débridée?",
    disable=r"désactiv\pL+|supprim\pL+|contourn\pL+|enlèv\pL+|lèv\pL+|bris\pL+|retir\pL+|coup\pL+",
    safety=r"(?:tes|vos|ton|votre) <1>(?:filtres?|restrictions?|garde.fous|limitations?|censure|"
    r"sécurités?|protections?|règles (?:éthiques?|de sécurité)|barrières?|"
    r"mesures de sécurité|protocoles? de sécurité)\b",
    mode=r"mode (?:dieu|jailbreak|dan|sans (?:restriction|filtre|limite)s?) <2>(?:activé|"
    r"enclenché|est)|(?:activ|pass|entr)(?:e|ez|er) <2>mode (?:dieu|jailbreak|dan|"
    r"sans (?:restriction|filtre|limite)s?)|(?:tu es|vous êtes) <3>mode (?:développeur|"
    r"débogage|admin\pL*|maintenance)",
    orders=r"(?:tes |vos |voici (?:les|tes|vos) )?(?:nouvelles?|vraies|"
    r"véritables) (?:instructions?|consignes?|directives?|ordres)(?: système)?|"
    r"nouveau prompt(?: système)?",
    to_model=r"(?:aux|pour les|à tous les|à toutes les|à l.attention|pour l|chère?|"
    r"bonjour) <2>(?:ia|ai|llms?|modèles? de langage|chatbots?|assistante?s? (?:ia|"
    r"virtuel\pL*)|agents? ia|intelligences? artificielles?)\s{0,2}[:!]|(?:ia|llms?|"
    r"modèle\pL*|assistante?s?|agents?|chatbots?|langage) qui (?:li\pL+|trait\pL+|"
    r"analys\pL+|résum\pL+) (?:ceci|cela|ce|cette)|si (?:tu es|vous êtes) une? (?:ia|"
    r"intelligence artificielle|llm|modèle de langage|chatbot|assistante? (?:ia|"
    r"virtuel\pL*))\b",
    send=r"envo[iy]\pL+|transmet\pL*|transfèr\pL+|transfér\pL+|expédi\pL+|post\pL+|téléverse\pL*",
    secrets=r"mots? de passe|clés? (?:d.)?api|identifiants|secrets|clés? privées?|jetons? d.accès|"
    r"données (?:des )?clients|historique (?:de |des )?(?:la )?(?:conversation|"
    r"discussion)s?|variables d.environnement|prompt système",
    quiet=r"ne (?:dis|dites|mentionne|mentionnez|préviens|prévenez|informe|informez|parle|"
    r"parlez) <4>(?:l.)?(?:utilisateur|usager)|sans (?:prévenir|informer|avertir|en parler|"
    r"le dire|demander) <2>(?:utilisateur|usager)",
)

SPANISH = LanguageWords(
    name="es",
    developer_mode=r"modo (?:de )?(?:desarrollador|depuración|administrador)",
    no=r"no (?:te |se |me |lo )?",
    refuse=r"no (?:sigas|siga|obedezcas|obedezca|hagas caso|tengas en cuenta)",
    drop=r"ignor(?:a|e|en|ar|es|á|ad)|olvid(?:a|e|en|ar|es|á|ate|ad)|omit(?:e|a|ir|í)|descart(?:a|"
    r"e|ar)|desestim(?:a|e|ar)|ha(?:z|ga|cer) caso omiso|pas(?:a|e) por alto|desobede(?:ce|"
    r"zca)|deja de (?:seguir|lado)|prescind(?:e|a|ir)",
    law=r"(?:instrucci(?:ón|ones)|indicaciones|órdenes|orden|reglas?|directrices|directivas?|"
    r"normas|prompts?|restricciones|programación|pautas|mensajes del sistema)\b",
    old=r"tus?|sus|anteriores|previas?|previos?|antiguas",
    since=r"anteriores?|previas?|previos?|iniciales|inicial|originales|original|de arriba|"
    r"de antes|precedentes?|(?:que|te) <2>(?:dado|dieron|dijeron|recibido|dije|di)|"
    r"hasta ahora|preestablecidas",
    everything=r"todo|lo",
    heard=r"(?:te|le) (?:he|han|hayan|dijeron|dieron|dije|enseñaron|ordenaron|pidieron)|anterior\b|"
    r"(?:de |más )arriba|hasta (?:ahora|aquí|este)|de antes|antes de est[eo]|"
    r"has (?:aprendido|leído)",
    reveal=r"muéstr\pL+|muestr\pL+|mostr\pL+|revel\pL+|dime|dame|diga\pL*|imprim\pL+|enséñ\pL+|"
    r"enseñ\pL+|repit\pL+|repet\pL+|cuéntame|escrib\pL+|compart\pL+|cuál(?:es)? (?:es|son|"
    r"era|eran)|expon\pL+|divulg\pL+|filtra\pL*|lista\pL*|resum\pL+|proporcion\pL+",
    prompt=r"(?:tus?|sus?|el|las|los) <1>(?:prompts?|instrucciones|mensaje|indicaciones) (?:del? |"
    r"iniciales de )?(?:sistema|iniciale?s?|originale?s?|internas?|ocult[ao]s?|"
    r"secret[ao]s?|oculto)|(?:tu|su) prompt\b|system prompt|prompt del? sistema|"
    r"mensaje del? sistema <2>que <1>(?:has|recibiste|te)",
    being=r"(?:ahora |ya )?(?:eres|serás|sos) |no tienes|act[uú]a|compórtate|respond\pL+|finge|"
    r"imagina|haz de cuenta|(?:una|la) ia\b|asistente|chatgpt|chatbot|modelo de lenguaje",
    unbound=r"(?:sin|ning[uú]n|ninguna|libre de) <2>(?:restricci(?:ón|ones)|filtros?|censura|"
    r"límites? (?:éti|mora)\pL*|ética|moral|limitaciones|reglas?|normas)\b|"
    r"sin (?:censurar|filtrar)",
    disable=r"desactiv\pL+|deshabilit\pL+|elimin\pL+|quit\pL+|evad\pL+|elud\pL+|salt\pL+|apag\pL+|"
    r"remuev\pL+|romp\pL+",
    safety=r"(?:tus?|sus?) <1>(?:filtros? (?:de (?:seguridad|contenido)|étic\pL+|moral\pL+)|"
    r"filtros|restricciones|limitaciones|censura|medidas de seguridad|barreras|"
    r"protocolos? de seguridad|salvaguard\pL+|reglas de seguridad)\b",
    mode=r"modo (?:dios|jailbreak|dan|sin (?:restricciones|filtros|límites|"
    r"censura)) <2>(?:activado|habilitado|está)|(?:activa|activar|entra|"
    r"habilita) <2>modo (?:dios|jailbreak|dan|sin (?:restricciones|filtros|límites|censura))|"
    r"(?:eres|estás) <3>modo (?:desarrollador|depuración|administrador|mantenimiento)",
    orders=r"(?:tus |estas son tus )?(?:nuevas?|verdaderas|actualizadas) (?:instrucci(?:ón|ones)|"
    r"órdenes|directrices|directivas?)(?: del sistema)?|nuevo prompt(?: del sistema)?",
    to_model=r"(?:nota|mensaje|atención|instrucciones|aviso|importante|hola|querida?) <3>(?:ia|ai|"
    r"llms?|modelos? de lenguaje|chatbots?|asistentes? (?:de )?(?:ia|virtual\pL*)|"
    r"agentes? (?:de )?ia|inteligencia artificial)\s{0,2}[:!]|(?:ia|llms?|modelo\pL*|"
    r"lenguaje|asistentes?|agentes?|chatbots?) que (?:est[eéaá]n? )?(?:le\pL+|proces\pL+|"
    r"analic\pL+|analiz\pL+|resum\pL+) (?:esto|este|esta)|si eres una? (?:ia|"
    r"inteligencia artificial|llm|modelo de lenguaje|chatbot|asistente (?:de )?(?:ia|"
    r"virtual))\b",
    send=r"enví\pL+|envi\pL+|mand\pL+|reenví\pL+|reenvi\pL+|transmit\pL+|sub[ea]\b|public\pL+",
    secrets=r"contraseñas?|claves? (?:de )?(?:la )?api|credenciales|secretos|claves? privadas?|"
    r"tokens? de acceso|datos (?:de )?(?:los )?clientes|"
    r"historial (?:de )?(?:la )?(?:conversación|chat)|variables de entorno|"
    r"prompt del sistema",
    quiet=r"no (?:le )?(?:digas|menciones|informes|avises|cuentes|notifiques) <4>usuario|"
    r"sin (?:decirle|avisar|informar|notificar|preguntar) <2>usuario",
)

PORTUGUESE = LanguageWords(
    name="pt",
    developer_mode=r"modo (?:de )?(?:desenvolvedor|depuração|administrador)",
    no=r"não (?:te |se |me |o )?|nunca ",
    refuse=r"não (?:siga|sigas|obedeça|leve em (?:conta|consideração))",
    drop=r"ignor(?:e|a|ar|em)|esqueç(?:a|am)|esquece|esquecer|desconsider(?:e|a|ar|em)|"
    r"desprez(?:e|a|ar)|descart(?:e|a|ar)|desobedeça|deixe de (?:seguir|lado)|pare de seguir|"
    r"abandone|anule",
    law=r"(?:instruç(?:ão|ões)|ordens|ordem|regras?|diretrizes|diretivas?|orientações|comandos?|"
    r"prompts?|restrições|programação|normas|indicações)\b",
    old=r"suas?|seus?|tuas?|teus?|anteriores|prévias?",
    since=r"anteriores?|prévias?|prévios?|iniciais|inicial|originais|original|acima|de antes|"
    r"precedentes|passadas|(?:que|lhe|te) <2>(?:recebeu|deram|dei|dadas|passei|dado)|"
    r"até (?:agora|aqui)|dadas anteriormente",
    everything=r"tudo|o",
    heard=r"(?:te|lhe|foi|você) <2>(?:disse\pL*|dito|ensin\pL+|pedi\pL*|orden\pL+|aprendeu|leu)|"
    r"acima|até (?:agora|aqui|este)|anterior(?:mente)?|antes (?:disso|disto|desta|deste)",
    reveal=r"mostr\pL+|revel\pL+|diga\pL*|diz\b|imprim\pL+|repit\pL+|repet\pL+|exib\pL+|"
    r"escrev\pL+|compartilh\pL+|partilh\pL+|qua(?:l|is) (?:é|são|era|eram)|exponh\pL+|"
    r"divulg\pL+|vaz\pL+|liste\pL*|resum\pL+|forneç\pL+|conte\b|me dê",
    prompt=r"(?:seus?|suas?|teus?|tuas?|o|as|os) <1>(?:prompts?|instruções|mensagem|mensagens|"
    r"diretrizes) (?:d[eo] |iniciais do )?(?:sistema|inicia(?:l|is)|origina(?:l|is)|"
    r"intern[ao]s?|ocult[ao]s?|secret[ao]s?|escondid[ao]s?)|(?:seu|teu) prompt\b|"
    r"system prompt|prompt d[eo] sistema|mensagem d[eo] sistema <2>que (?:você|tu|lhe|te)",
    being=r"(?:você|tu) (?:agora )?(?:é|és|não|será)|(?:aja|atue|comporte.se|responda|finja|"
    r"imagine)|(?:uma|a) ia\b|assistente|chatgpt|chatbot|modelo de linguagem",
    unbound=r"(?:sem|nenhuma?|qualquer|livre de) <2>(?:restriç(?:ão|ões)|filtros?|censura|"
    r"limites? (?:éti|mora)\pL*|ética|moral|limitações|regras?)\b|sem (?:censurar|filtrar)",
    disable=r"desativ\pL+|desabilit\pL+|remov\pL+|contorn\pL+|burl\pL+|deslig\pL+|quebr\pL+|"
    r"elimin\pL+|retir\pL+",
    safety=r"(?:seus?|suas?|teus?|tuas?) <1>(?:filtros?|restrições|limitações|censura|"
    r"medidas de segurança|barreiras|protocolos? de segurança|salvaguardas|proteções|"
    r"travas|regras de segurança)\b",
    mode=r"modo (?:deus|jailbreak|dan|sem (?:restrições|filtros|limites|censura)) <2>(?:ativado|"
    r"habilitado|está)|(?:ative o|ativar o|entre no|entre em|habilite o) <1>modo (?:deus|"
    r"jailbreak|dan|sem (?:restrições|filtros|limites|censura))|"
    r"você (?:agora )?está <2>modo (?:de )?(?:desenvolvedor|depuração|administrador|"
    r"manutenção)",
    orders=r"(?:suas |tuas )?(?:novas?|verdadeiras|atualizadas) (?:instruç(?:ão|ões)|ordens|"
    r"diretrizes|diretivas?)(?: do sistema)?|novo prompt(?: do sistema)?",
    to_model=r"(?:nota|mensagem|atenção|instruções|aviso|importante|olá|caro|cara|"
    r"prezad[ao]) <3>(?:ia|ai|llms?|modelos? de linguagem|chatbots?|"
    r"assistentes? (?:de )?(?:ia|virtua\pL*)|agentes? (?:de )?ia|"
    r"inteligência artificial)\s{0,2}[:!]|(?:ia|llms?|modelo\pL*|linguagem|assistentes?|"
    r"agentes?|chatbots?) que (?:estiver(?:em)? |está )?(?:l[eê]\pL*|process\pL+|"
    r"analis\pL+|resum\pL+) (?:isto|isso|este|esta)|se (?:você é|você for|tu fores|"
    r"tu és) uma? (?:ia|inteligência artificial|llm|modelo de linguagem|chatbot|"
    r"assistente (?:de )?(?:ia|virtual))\b",
    send=r"envi\pL+|mand\pL+|encaminh\pL+|transmit\pL+|poste|publique|repass\pL+",
    secrets=r"senhas?|palavras.passe|chaves? (?:de |da )?api|credenciais|segredos|"
    r"chaves? privadas?|tokens? de acesso|dados (?:dos )?clientes|histórico (?:da |"
    r"de )?(?:conversa|chat|bate.papo)s?|variáveis de ambiente|prompt do sistema",
    quiet=r"não (?:conte|diga|mencione|informe|avise|notifique|fale) <4>usuário|sem (?:avisar|"
    r"informar|contar|notificar|dizer|perguntar) <2>usuário",
)

ITALIAN = LanguageWords(
    name="it",
    developer_mode=r"modalità (?:sviluppatore|debug|amministratore)",
    no=r"non |mai ",
    refuse=r"non (?:seguire|rispettare|tenere conto|considerare)",
    drop=r"ignor(?:a|i|ate|are|ino)|dimentic(?:a|hi|ate|are)|trascur(?:a|ate|are)|scord(?:a|ati|"
    r"atevi)|tralasci(?:a|are)|lascia perdere|disobbedisci|scarta|abbandona",
    law=r"(?:istruzion[ei]|indicazioni|ordini|regol[ae]|direttiv[ae]|linee guida|comandi|prompt|"
    r"restrizioni|programmazione|vincoli|disposizioni)\b",
    old=r"tu[eoi]|tua|vostr[ei]|precedenti|vecchie|vecchi|sue|suoi",
    since=r"precedent[ei]|antecedenti|iniziali|originali|di prima|(?:di cui |qui )?sopra|"
    r"anteriori|passate|che (?:ti|hai|avete|vi) <3>(?:dat[oeai]|ricevut[oeai]|fornit[oeai])|"
    r"finora|ricevute (?:prima|finora)|date (?:prima|finora)",
    everything=r"tutto",
    heard=r"(?:ti|vi) (?:è|ho|hanno|abbiamo|sia|era) <2>(?:detto|stato|insegnato|chiesto|dato|"
    r"ordinato)|sopra|finora|precede\pL*|(?:di |venuto )prima|fino (?:a|ad) (?:ora|adesso|"
    r"questo)|hai <1>(?:imparato|letto)",
    reveal=r"mostr\pL+|rivel\pL+|dimmi|dammi|stamp\pL+|ripet\pL+|scriv\pL+|condivid\pL+|"
    r"qual(?:i)? (?:è|sono|era|erano)|qual è|elenc\pL+|riassum\pL+|espon\pL+|divulg\pL+|"
    r"visualizz\pL+|fornisc\pL+|svel\pL+|dite",
    prompt=r"(?:tu[oei]i?|tua|il|le|vostr[oe]) <1>(?:prompt|istruzioni|messaggio|messaggi) (?:di |"
    r"del |iniziali di )?(?:sistema|inizial[ei]|original[ei]|intern[eo]|nascost[oe]|"
    r"segret[oe])|(?:tuo|vostro) prompt\b|system prompt|prompt di sistema|istruzioni (?:di|"
    r"del) sistema|messaggio di sistema <1>che (?:hai|ti)",
    being=r"(?:tu )?(?:adesso |ora )(?:sei|hai)|sei (?:un|una|ora|adesso)|non hai|agisci|"
    r"comportati|rispondi|fingi|immagina|fai finta|(?:un|una|l).?ia\b|assistente|chatgpt|"
    r"chatbot|modello linguistico",
    unbound=r"(?:senza|nessun|nessuna|alcuna?|priv[ao] di) <2>(?:restrizion[ei]|filtr[oi]|"
    r"censur[ae]|limiti? (?:etic|moral)\pL*|etica|morale|limitazioni|regol[ae]|"
    r"vincoli (?:etic|moral)\pL*)\b|non (?:censurat|filtrat)[oa]",
    disable=r"disattiv\pL+|disabilit\pL+|rimuov\pL+|aggir\pL+|elud\pL+|elimin\pL+|spegn\pL+|"
    r"togli\pL*|bypass\pL*",
    safety=r"(?:tu[oei]i?|tua|vostr[ei]) <1>(?:filtr[oi]|restrizioni|limitazioni|censura|"
    r"misure di sicurezza|barriere|protezioni|protocoll[oi] di sicurezza|salvaguardie|"
    r"regole di sicurezza)\b",
    mode=r"modalità (?:dio|jailbreak|dan|senza (?:restrizioni|filtri|limiti|"
    r"censura)) <2>(?:attivata|attiva|abilitata)|(?:attiva|entra|abilita) <2>modalità (?:dio|"
    r"jailbreak|dan|senza (?:restrizioni|filtri|limiti|censura))|"
    r"sei <3>modalità (?:sviluppatore|debug|amministratore|manutenzione)",
    orders=r"(?:le tue )?(?:nuov[ae]|vere|aggiornate) (?:istruzion[ei]|direttiv[ae]|"
    r"disposizioni)(?: di sistema)?|nuovi ordini|nuovo prompt(?: di sistema)?",
    to_model=r"(?:nota|messaggio|attenzione|istruzioni|avviso|importante|ciao|cari) <3>(?:ia|ai|"
    r"llm|modell[oi] linguistic[oi]|chatbot|assistent[ei] (?:ia|ai|virtual[ei])|"
    r"agent[ei] (?:ia|ai)|intelligenza artificiale)\s{0,2}[:!]|(?:ia|ai|llm|modello|"
    r"linguistico|assistente|agente|chatbot) che (?:sta |stai )?(?:legg\pL+|elabor\pL+|"
    r"analizz\pL+|riassum\pL+) (?:questo|questa|ciò)|se sei un.?(?: |)?(?:a )?(?:ia|ai|"
    r"intelligenza artificiale|llm|modello linguistico|chatbot|assistente (?:ia|ai|"
    r"virtuale))\b",
    send=r"invi\pL+|mand\pL+|inoltr\pL+|trasmett\pL+|spedisc\pL+|pubblic\pL+|carica\b",
    secrets=r"password|chiav[ei] (?:dell. ?)?api|credenziali|segreti|chiav[ei] privat[ae]|"
    r"token di accesso|dati (?:dei )?clienti|cronologia (?:della )?(?:conversazione|chat)|"
    r"variabili d.ambiente|prompt di sistema",
    quiet=r"non (?:dire|menzionare|informare|avvisare|raccontare|notificare|dirlo) <4>utente|"
    r"senza (?:dirlo|avvisare|informare|notificare|chiedere) <2>utente",
)

FIRST_LANGUAGES = (GERMAN, FRENCH, SPANISH, PORTUGUESE, ITALIAN)
