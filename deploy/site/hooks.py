"""Makes README.md the first page, and lets links out of docs/ lead to the repository."""

import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def pages_of(files, folder):
    """The pages of a folder, its README first."""
    pages = [f.src_uri for f in files.documentation_pages() if f.src_uri.startswith(folder + "/")]
    return sorted(pages, key=lambda p: (not p.endswith("README.md"), p))


def on_files(files, config):
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    for entry in config.nav:
        for title, value in entry.items():
            if isinstance(value, str) and not value.endswith(".md"):
                entry[title] = pages_of(files, value)
    return files


def on_page_markdown(markdown, page, config, files):
    readme = page.file.src_uri == "index.md"
    here = ROOT if readme else (ROOT / "docs" / page.file.src_uri).parent

    def lead(match):
        target, anchor = (here / match[1]).resolve(), match[2] or ""
        if (target / "README.md").exists():
            target /= "README.md"
        if not target.exists():
            return match[0]  # MkDocs complains
        if target == ROOT / "README.md":
            target = ROOT / "docs" / "index.md"
        if target.is_relative_to(ROOT / "docs"):
            return f"]({os.path.relpath(target, ROOT / 'docs' if readme else here)}{anchor})"
        return f"]({config.repo_url}/{'tree' if target.is_dir() else 'blob'}/main/{target.relative_to(ROOT)}{anchor})"

    markdown = LINK.sub(lead, markdown)
    return re.sub(r'(src(?:set)?=")docs/', r"\1", markdown) if readme else markdown
