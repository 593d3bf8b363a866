"""The explorer: a page over the stores of `ig2 run`, served on this machine or exported as a site."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.explorer.catalogue import Catalogue, Query
    from ig2.explorer.collection import Collection
    from ig2.explorer.projection import Projection
    from ig2.explorer.server import make_app, serve
    from ig2.explorer.site import export_site
    from ig2.explorer.streaming import Partial, stream
    from ig2.explorer.whatif import Request, WhatIf
else:
    __getattr__, __dir__ = attach(
        __name__,
        {
            "catalogue": ["Catalogue", "Query"],
            "collection": ["Collection"],
            "projection": ["Projection"],
            "server": ["make_app", "serve"],
            "site": ["export_site"],
            "streaming": ["Partial", "stream"],
            "whatif": ["Request", "WhatIf"],
        },
    )

__all__ = [
    "Catalogue", "Collection", "Partial", "Projection", "Query", "Request", "WhatIf", "export_site", "make_app",
    "serve", "stream",
]  # fmt: skip
