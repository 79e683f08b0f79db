#!/usr/bin/env python3
"""Fails if a link leads nowhere.

check_links.py SITE          links within a site; and fails if a page loads something from elsewhere
check_links.py FILE.md...    links of files of Markdown to other files, and to headings in them
"""
import html.parser
import pathlib
import re
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


def anchors_of(text):
    headings = re.findall(r"^#+ +(.*?) *$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_files(files):
    checked, wrong = 0, []
    for path in files:
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for url in re.findall(r"\[[^]]*\]\(([^()\s]+)\)", text):
            parts = urllib.parse.urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            known = not parts.fragment or (
                target.suffix == ".md" and target.exists() and
                parts.fragment in anchors_of(target.read_text(encoding="utf-8")))
            if not target.exists() or not known:
                wrong.append((path, url))
    for path, url in wrong:
        print(f"{path} links to {url}")
    print(f"{len(files)} files, {checked} links, {len(wrong)} of them wrong")
    return bool(wrong) or not checked


def check_site(site):
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


places = [pathlib.Path(argument).resolve() for argument in sys.argv[1:]]
sys.exit(check_files(places) if places[0].suffix == ".md" else check_site(*places))
