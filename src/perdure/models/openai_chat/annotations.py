"""Parse the annotations and source lists of a chat completions response as citations. No I/O.

OpenAI and OpenRouter annotate passages of the text. Perplexity and xAI list the addresses of their sources, which the
text refers to by number.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.core.message import Citation
from perdure.models.mistyped_json_fields import as_dict, as_dicts, as_list, as_text

ANNOTATION_FIELD = "annotations"


def parse_annotation(annotation: Mapping[str, Any], offset: int = 0) -> Citation:
    """Parse one annotation of a chat completions reply as a `Citation`.

    `url_citation` and `file_citation` cite a source; `file` is a document that was read.

    `offset` is where the annotated text begins in the reply's text.
    """
    kind = as_text(annotation.get("type"))
    told = as_dict(annotation.get(kind)) or annotation
    title = as_text(told.get("title")) or as_text(told.get("filename")) or as_text(told.get("name"))
    source = as_text(told.get("url")) or as_text(told.get("file_id")) or as_text(told.get("hash")) or title
    quote = as_text(told.get("content")) or as_text(told.get("quote"))
    start, end = told.get("start_index"), told.get("end_index")
    if type(start) is int and type(end) is int and 0 <= start < end:
        return Citation(source, title, quote, offset + start, offset + end, dict(annotation))
    return Citation(source, title, quote, details=dict(annotation))


def parse_source_lists(urls: Any, results: Any) -> Iterator[Citation]:
    """Yield a citation for each URL in a response's list of sources and in its search results.

    Title and quote are those of the search result.
    """
    found = {url: each for each in as_dicts(results) if (url := as_text(each.get("url")))}
    listed = [each for each in as_list(urls) if isinstance(each, str)]
    for url in dict.fromkeys([*listed, *found]):
        told = found.get(url, {})
        yield Citation(url, as_text(told.get("title")), as_text(told.get("snippet")), details=told)
