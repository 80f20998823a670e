"""What goes wrong in the played year, run by run, and how each run ends."""

from dataclasses import dataclass

PROFILE = "year"
OTHER = "other"  # a profile without models in the same clone


@dataclass(frozen=True)
class Try:
    """A run: the number of its month, what happens, and how it ends."""

    month: int
    happens: str
    ends: str = "Completed"
    alerts: int = 0  # that arrive
    profile: str = PROFILE

    @property
    def is_asked_for(self) -> bool:
        """Whether someone starts this run, while the one before is at work."""
        return self.happens in ASKED_FOR


ASKED_FOR = ("out of order", "other profile")
YEAR = (
    Try(1, "whole", "LandedUncompared", alerts=1),
    Try(2, "push rejected", "Failed", alerts=1),
    Try(2, "whole"),
    Try(3, "webhook down", "DumpsLate"),
    Try(3, "late", "DumpsLate", alerts=1),
    Try(3, "whole"),
    Try(4, "damaged", "Failed", alerts=1),
    Try(4, "whole"),
    Try(5, "stage killed", "Failed", alerts=1),
    Try(5, "whole"),
    Try(7, "out of order"),
    Try(6, "halved", "StoppedByGate", alerts=1),
    Try(6, "whole"),
    Try(7, "other profile", "LandedUncompared", alerts=1, profile=OTHER),
    Try(8, "flow killed", "Crashed", alerts=1),
    Try(8, "whole"),
    Try(8, "other profile", profile=OTHER),
    Try(9, "thinned", "StoppedByGate", alerts=1),
    Try(9, "accepted"),
    Try(10, "disk full", "Failed", alerts=1),
    Try(10, "whole"),
    Try(11, "whole"),
    Try(12, "not whole", "AwaitingDumps"),  # this month has ended some days ago
    Try(12, "whole"),
)
IN_WORDS = {
    "whole": "the dumps come",
    "late": "the page views are not there",
    "not whole": "Wikidata's dump is still written",
    "damaged": "Wikidata's dump has another checksum than published",
    "stage killed": "the stage that embeds is killed",
    "halved": "half of Wikidata's entities are gone, by mistake",
    "flow killed": "the run is killed while it embeds",
    "thinned": "a third of Wikidata's entities are gone, for good",
    "accepted": "someone accepts that",
    "disk full": "the disk gets full",
    "push rejected": "git's remote takes no push",
    "webhook down": "the page views are not there, and the webhook is down",
    "out of order": "someone builds this month before the one that is due",
    "other profile": "someone builds this month of another profile in the same clone",
}
