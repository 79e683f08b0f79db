#!/usr/bin/env python3
"""check_links.py SITE: fails if a link within a site leads nowhere, or if a page loads something from elsewhere."""
import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.anchors.update(a[key] for key in ("id", "name") if a.get(key))
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        if tag in ("img", "script", "iframe") and a.get("src"):
            self.loads.append(a["src"])
        if tag == "link" and a.get("href") and a.get("rel") != "canonical":
            self.loads.append(a["href"])


def main(site):
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    checked, wrong = 0, []
    for path, page in pages.items():
        for kind, urls in (("links to", page.links), ("loads", page.loads)):
            for url in urls:
                parts = urllib.parse.urlsplit(url)
                if parts.scheme or parts.netloc:
                    if kind == "loads" and parts.scheme not in ("data", "javascript"):
                        wrong.append((path, kind, url))
                    continue
                checked += 1
                target = path
                if parts.path:
                    target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
                    if target.is_dir():
                        target /= "index.html"
                anchor = urllib.parse.unquote(parts.fragment)
                known = target not in pages or anchor in ("", "top") or anchor in pages[target].anchors
                if not target.exists() or not known:
                    wrong.append((path, kind, url))
    for path, kind, url in wrong:
        print(f"{path.relative_to(site)} {kind} {url}")
    print(f"{len(pages)} pages, {checked} links, {len(wrong)} of them wrong")
    return bool(wrong) or not checked


sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
