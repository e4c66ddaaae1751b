"""Tables that map the error codes, statuses and phrases of providers to kinds of errors.

Codes are in lower case, without separators.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

ErrorKind: TypeAlias = Literal["overflow", "unpaid", "key", "refused", "request", "spoiled", "rate", "down"]
"""Kind of error. overflow: the request is too long. unpaid: no credit or quota. key: authentication. refused: content
policy. request: invalid request. spoiled: the provider discarded the reply. rate: rate limit. down: server failure.
"""

_CODES_BY_KIND: Mapping[ErrorKind, str] = {
    "overflow": """contextlengthexceeded contextwindowexceeded exceedcontextsizeerror toomanytokens
        toomanyprompttokens modelmaxprompttokensexceeded requesttoolarge promptexceedsmaxlength""",
    "unpaid": """insufficientquota billingerror billinghardlimitreached billingnotactive paymentmethodrequired
        paymentrequired insufficientbalance insufficientcredits exceededcurrentquotaerror arrearage
        servicequotaexceededexception accountoverduebalance""",
    "key": """authenticationerror invalidapikey incorrectapikeyerror invalidauthenticationerror apikeyinvalid
        apikeyexpired permissionerror permissiondenied permissiondeniederror unauthenticated unauthorized
        accessdenied accessdeniedexception unrecognizedclientexception expiredtokenexception accountdeactivated
        invalidsignatureexception missingauthenticationtokenexception tokenexpired""",
    "refused": """contentfilter contentpolicyviolation responsibleaipolicyviolation safety prohibitedcontent
        datainspectionfailed guardrailintervened moderationblocked cyberpolicyviolation""",
    "spoiled": "toolusefailed jsonvalidatefailed outputparsefailed",
    "rate": """ratelimiterror ratelimitexceeded ratelimitreachederror ratelimited ratelimit toomanyrequests
        throttlingexception throttling throttlingratequota resourceexhausted slowdown""",
    "down": """overloadederror overloaded apierror servererror internalservererror internal internalerror unavailable
        serviceunavailable serviceunavailableerror serviceunavailableexception internalserverexception
        modelnotreadyexception modeltimeoutexception modelerrorexception modelstreamerrorexception
        engineoverloadederror engineoverloaded deadlineexceeded timeouterror timeout aborted badgateway
        upstreamerror providererror vectorstoretimeout""",
    "request": """invalidrequesterror invalidargument invalidrequest validationexception badrequesterror badrequest
        notfounderror notfound modelnotfound resourcenotfoundexception resourcenotfounderror failedprecondition
        unsupportedvalue unsupportedparameter outofrange unprocessableentityerror invalidparametererror
        invalidparameter""",
}
"""Codes of each kind. If a response has several codes, the first kind in this order applies."""

KIND_BY_CODE: Mapping[str, ErrorKind] = {
    code: meaning for meaning, codes in _CODES_BY_KIND.items() for code in codes.split()
}
KINDS_BY_PRIORITY = tuple(_CODES_BY_KIND)

KIND_BY_STATUS: Mapping[int, ErrorKind] = {
    **dict.fromkeys(range(300, 500), "request"),
    **dict.fromkeys(range(500, 1000), "down"),
    **dict.fromkeys((408, 409, 421, 423, 424, 425, 499), "down"),
    **dict.fromkeys((401, 403, 407), "key"),
    402: "unpaid",
    413: "overflow",
    429: "rate",
}
"""Kind of error of each HTTP status. Other statuses are not used for classification."""
AMBIGUOUS_STATUSES = frozenset({400, 403, 422, 451})
"""Statuses that providers use for many kinds of errors."""
WRONG_URL_STATUSES = frozenset({*range(300, 400), 404, 405, 410})
"""Statuses of a wrong URL."""


def _compile_phrases(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


OVERFLOW_PHRASES = _compile_phrases(
    r"(?:prompt|input|request|conversation) (?:is )?too (?:long|large)",
    r"too many (?:input |prompt )?tokens",
    r"context[ _-]?(?:window|length|size|limit)",
    r"maximum context",
    r"max(?:imum)? (?:model|prompt|input|sequence) (?:length|tokens)",
    r"input token count.{0,80}exceed",
    r"input tokens? exceed",
    r"(?:prompt|input|token count).{0,80}exceeds? (?:the |its )?(?:max|limit)",
    r"token limit: ?\d",
    r"reduce (?:the length of )?(?:the|your) (?:messages?|prompt|input)",
    r"length of all messages is too long",
    r"`inputs` tokens \+",
    r"range of input length should be",
    r"too large for model",
)
ABOVE_MINUTE_LIMIT_PHRASES = _compile_phrases(
    r"request too large", r"tokens must be reduced", r"reduce your message size"
)
"""Phrases of a single request above the limit per minute: waiting does not help."""
UNPAID_PHRASES = _compile_phrases(
    r"credit balance",
    r"(?:insufficient|not enough|no) (?:account )?(?:balance|credits?|funds|quota)",
    r"payment (?:method )?(?:is )?required",
    r"plan and billing",
    r"billing (?:hard limit|is not active|not active|account.{0,40}(?:disabled|closed))",
    r"account.{0,60}(?:suspended|in arrears|overdue)",
    r"(?:spending|monthly|usage) limit.{0,30}(?:reached|exceeded)",
    r"exceeded your (?:current|monthly) (?:quota|included)",
)
AUTH_PHRASES = _compile_phrases(
    r"(?:invalid|incorrect|missing|expired|bad|wrong|no) (?:x-)?api[ _-]?key",
    r"api[ _-]?key.{0,40}(?:invalid|not valid|incorrect|expired|missing|required|not found|disabled|revoked)",
    r"unauthenticated",
    r"unauthori[sz]ed",
    r"not authori[sz]ed",
    r"authentication (?:fail|error|required|token)",
    r"permission denied",
    r"security token.{0,60}(?:invalid|expired)",
    r"login fail",
    r"account.{0,40}deactivated",
)
REFUSED_PHRASES = _compile_phrases(
    r"content (?:policy|filter|management policy|moderation|exists risk)",
    r"usage (?:policy|policies|guidelines)",
    r"violat\w+.{0,60}(?:polic(?:y|ies)|guidelines|terms)",
    r"(?:prompt|input|request|content) (?:was|has been|is) (?:flagged|blocked|rejected by the safety)",
    r"safety (?:system|filter|check|reasons)",
    r"responsible ai",
    r"inappropriate content",
    r"prohibited_content",
    r"(?:new_|contains? )sensitive",
)
RATE_LIMIT_PHRASES = _compile_phrases(
    r"rate[ -]?limit",
    r"too many requests",
    r"throttl",
    r"per[ -]minute",
    r"resource (?:has been )?exhausted",
    r"quota exceeded",
    r"\b429\b",
)
SERVER_FAILURE_PHRASES = _compile_phrases(
    r"overloaded",
    r"unavailable",
    r"internal (?:server )?error",
    r"bad gateway",
    r"gateway time-?out",
    r"timed? ?out",
    r"connection.{0,20}(?:reset|refused|closed|error)",
    r"temporar",
    r"try again",
    r"\b50[0234]\b",
)
UNKNOWN_MODEL_PHRASES = _compile_phrases(
    r"\bmodels?\b.{0,120}(?:not found|not exist|is invalid|unknown|not deployed|inaccessible)",
    r"(?:not found|unknown|invalid|no such) (?:the )?model\b",
    r"^model: ",
    r"no endpoints found",
)
INVALID_REQUEST_PHRASES = _compile_phrases(
    r"invalid (?:request|argument|param)", UNKNOWN_MODEL_PHRASES.pattern, r"not supported"
)

PHRASES_BY_KIND: Mapping[ErrorKind, re.Pattern[str]] = {
    "unpaid": UNPAID_PHRASES,
    "key": AUTH_PHRASES,
    "refused": REFUSED_PHRASES,
    "request": INVALID_REQUEST_PHRASES,
    "rate": RATE_LIMIT_PHRASES,
    "down": SERVER_FAILURE_PHRASES,
}
"""Phrases of each kind. Permanent errors are checked before temporary ones."""

WINDOW_PHRASES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"context (?:length|window|size|limit)\D{0,30}? (?:is|of)(?: only)?:? (\d[\d,_]*)",
        r"context (?:length|window|size)[: ]{1,2}\(?(\d[\d,_]*)",
        r"max(?:imum)? (?:model|prompt|input|sequence) length (?:is|of):? (\d[\d,_]*)",
        r"> (\d[\d,_]*) maximum",
        r"context limit: [\d,_ +]{1,60}> (\d[\d,_]*)",
        r"tokens allowed \((\d[\d,_]*)\)",
        r"limit for this model is (\d[\d,_]*)",
        r"(?:configured|token|while|exceeds the) limit(?: is| of|:) ?(\d[\d,_]*)",
        r"with (\d[\d,_]*) maximum context",
        r"must be <= ?(\d[\d,_]*)",
        r"input length should be \[\d+, ?(\d+)\]",
    )
]
"""Phrases that contain the size of the context window."""
