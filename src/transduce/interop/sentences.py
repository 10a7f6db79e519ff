"""Sentences to compare models on where nobody gives any: of many languages and scripts, short and long."""

from typing import Final

# The first article of the Universal Declaration of Human Rights (1948), and what text has beside words.
SENTENCES: Final = (
    "All human beings are born free and equal in dignity and rights.",
    "They are endowed with reason and conscience and should act towards one another in a spirit of brotherhood.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.",
    "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
    "人人生而自由，在尊严和权利上一律平等。",
    "Yes.",
    "Where is the station?",
    "Two men and a dog are walking along the beach in the evening.",
    "On 25 May 1977 it cost $3.50 (about 1,200 lire), i.e. far too much!",
)
