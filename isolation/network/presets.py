"""Names for the hosts that common package managers need."""

from collections.abc import Iterable, Mapping

PRESETS: Mapping[str, tuple[str, ...]] = {
    "@npm": ("registry.npmjs.org", "registry.yarnpkg.com"),
    "@pypi": ("pypi.org", "files.pythonhosted.org"),
    "@crates": ("crates.io", "index.crates.io", "static.crates.io"),
    "@go": ("proxy.golang.org", "sum.golang.org"),
    "@maven": ("repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "services.gradle.org"),
    "@rubygems": ("rubygems.org", "index.rubygems.org"),
}


def expanded(entries: Iterable[str]) -> tuple[str, ...]:
    """Return entries with presets replaced by their hosts."""
    return tuple(host for entry in entries for host in PRESETS.get(entry, (entry,)))
