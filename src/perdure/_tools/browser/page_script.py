"""The script that reads a frame of a page and acts in it, in a world of its own that the page's scripts cannot reach.

It sees the page's elements, but its own `String`, `Array` and the like. What it returns is bounded here, before it
leaves the process of the page. It remembers the elements that it has described: an act is refused if the element is
described in another way by then, and it happens in the document of the element, in one go. No mouse and no keyboard is
involved, whose events would go to the frame under the pointer, or with the focus, at that moment.
"""

from typing import Final

_ELEMENTS: Final = r"""
  // a form has its fields as properties, in our world too: one named "tagName" hides the real one
  const getter = (kind, name) => {
    const get = Object.getOwnPropertyDescriptor(kind.prototype, name).get;
    return node => get.call(node);
  };
  const getNodeType = getter(Node, "nodeType"), getParent = getter(Node, "parentNode");
  const getFirst = getter(Node, "firstChild"), getNext = getter(Node, "nextSibling");
  const getTagName = getter(Element, "tagName"), getShadow = getter(Element, "shadowRoot");
  const getAction = getter(HTMLFormElement, "action"), getEditable = getter(HTMLElement, "isContentEditable");
  const checkVisibility = Element.prototype.checkVisibility;
  const ROLES = new Set(("button link textbox searchbox checkbox radio combobox listbox menuitem menuitemcheckbox " +
    "menuitemradio option switch slider spinbutton tab treeitem").split(" "));
  const INPUTS = {button: "button", submit: "button", reset: "button", image: "button", checkbox: "checkbox",
    radio: "radio", range: "slider", number: "spinbutton", search: "searchbox", file: "file", hidden: ""};
  const NOT_TEXT = new Set("button checkbox color file hidden image radio range reset submit".split(" "));
  const flatten = text => String(text || "").slice(0, 3000).replace(/\s+/g, " ").trim().slice(0, 300).toWellFormed();
  const isVisible = node => checkVisibility.call(node, {opacityProperty: true, visibilityProperty: true});
  const isEditable = node => node instanceof HTMLElement && getEditable(node);
  const findTag = element => getTagName(element).toUpperCase();
  const findRole = (element, tag) => {
    if (tag === "FORM") return "";
    const given = (element.getAttribute("role") || "").split(" ")[0];
    if (ROLES.has(given)) return given;
    if (tag === "A") return element.hasAttribute("href") ? "link" : "";
    if (tag === "BUTTON" || tag === "SUMMARY") return "button";
    if (tag === "TEXTAREA" || isEditable(element) && !isEditable(getParent(element))) return "textbox";
    if (tag === "SELECT") return "combobox";
    if (tag === "INPUT") return INPUTS[element.type] ?? "textbox";
    return element.hasAttribute("onclick") ? "button" : "";
  };
  const readLabel = node => {  // without the options of a list in it
    if (getNodeType(node) === 3) return node.data;
    if (getNodeType(node) !== 1 || ["SELECT", "TEXTAREA", "SCRIPT", "STYLE"].includes(findTag(node))) return "";
    let text = "";
    for (let child = getFirst(node); child; child = getNext(child)) text += readLabel(child);
    return text;
  };
  const findName = (element, tag) => {
    const ids = (element.getAttribute("aria-labelledby") || "").split(" ").filter(Boolean);
    const labelled = ids.map(id => element.getRootNode().getElementById?.(id)?.innerText).join(" ");
    const labels = element.labels ? [...element.labels].map(readLabel).join(" ") : "";
    const pressed = tag === "INPUT" && ["button", "submit", "reset"].includes(element.type)
      ? element.value || element.type : "";
    const within = ["INPUT", "SELECT", "TEXTAREA"].includes(tag) ? "" : element.innerText ||
      [...element.querySelectorAll("img[alt]")].map(each => each.alt).join(" ");
    return flatten(labelled) || flatten(element.getAttribute("aria-label")) || flatten(labels) || flatten(pressed) ||
      flatten(within) || flatten(element.getAttribute("alt")) || flatten(element.getAttribute("placeholder")) ||
      flatten(element.getAttribute("title")) || flatten(element.getAttribute("name"));
  };
  const collectText = (element, isBefore, mostCharacters) => {
    const walker = document.createTreeWalker(element.getRootNode(), NodeFilter.SHOW_TEXT);
    let last = element;
    while (!isBefore && last.lastChild) last = last.lastChild;
    walker.currentNode = last;
    let text = "";
    for (let count = 0; count < 60 && text.length < mostCharacters; count++) {
      const node = isBefore ? walker.previousNode() : walker.nextNode();
      if (!node) break;
      if (!node.parentElement || !isVisible(node.parentElement)) continue;
      const data = isBefore ? node.data.slice(-300) : node.data.slice(0, 300);
      text = flatten(isBefore ? `${data} ${text}` : `${text} ${data}`);
    }
    return (isBefore ? text.slice(-mostCharacters) : text.slice(0, mostCharacters)).trim().toWellFormed();
  };
  const findNearby = element => {
    const before = collectText(element, true, 80), after = collectText(element, false, 40);
    return before || after ? `${before} … ${after}`.trim() : "";
  };
  const findDestination = (element, tag) => {
    if (tag === "A") return element.href;
    if (!element.form) return "";
    return element.hasAttribute("formaction") ? element.formAction : getAction(element.form);
  };
  const findState = element => [
    element.checked || element.getAttribute("aria-checked") === "true" ? "checked" : "",
    element.disabled || element.getAttribute("aria-disabled") === "true" ? "disabled" : "",
    element.getAttribute("aria-expanded") === "true" ? "expanded" : ""].filter(Boolean);
  const identify = element => {  // what a person is shown, and what has to be the same when the element is used
    const tag = findTag(element), role = findRole(element, tag);
    return {role, name: findName(element, tag), state: findState(element), nearby: findNearby(element),
      destination: String(findDestination(element, tag)).slice(0, 500).toWellFormed()};
  };
"""

_READ: Final = r"""
  const BLOCKS = new Set(("ADDRESS ARTICLE ASIDE BLOCKQUOTE BR CAPTION DD DETAILS DIV DL DT FIELDSET FIGCAPTION " +
    "FIGURE FOOTER FORM H1 H2 H3 H4 H5 H6 HEADER HR LEGEND LI MAIN NAV OL P PRE SECTION SUMMARY TABLE TR " +
    "UL").split(" "));
  const SKIPPED = new Set(("SCRIPT STYLE NOSCRIPT TEMPLATE HEAD SVG CANVAS VIDEO AUDIO OBJECT EMBED IFRAME " +
    "FRAME").split(" "));
  const isPage = /^(https?|about|blob|data):/.test(location.href);  // not the browser's own, such as of an error
  const describe = (element, tag, role) => {
    const found = {...identify(element), index: nodes.length, value: "", options: []};
    if (tag === "SELECT") {
      found.options = [...element.options].slice(0, 50).map(each => flatten(each.label));
      found.value = flatten(element.selectedOptions[0]?.label);
    } else if (tag === "TEXTAREA" || tag === "INPUT" && !["button", "checkbox", "radio"].includes(role)) {
      found.value = element.type === "password" ? (element.value ? "•••" : "") : flatten(element.value);
    }
    return found;
  };
  const read = (mostCharacters, mostElements) => {
    const parts = [];
    let size = 0, isTruncated = false;
    const mark = text => { parts.push({kind: "mark", mark: text}); size += 30; };
    const say = text => {
      const cut = text.slice(0, mostCharacters - size);
      parts.push(cut.toWellFormed());
      size += cut.length + 4;
    };
    const add = (node, tag, role) => {
      const found = describe(node, tag, role);
      size += JSON.stringify(found).length;
      nodes.push(node);
      known.push(found);
      parts.push({kind: "element", ...found});
    };
    const walk = (node, depth) => {
      if (size >= mostCharacters || nodes.length >= mostElements || depth > 300) { isTruncated = true; return; }
      if (getNodeType(node) === 3) {
        if (node.data) say(node.data.slice(0, mostCharacters).replace(/\s+/g, " "));
        return;
      }
      if (getNodeType(node) !== 1) return;
      const tag = findTag(node);
      if (tag === "IMG") {
        if (node.alt) { mark("[image: "); say(flatten(node.alt)); mark("]"); }
        return;
      }
      if (SKIPPED.has(tag)) return;
      if (getComputedStyle(node).display !== "contents" && !isVisible(node)) return;
      const role = isPage && findRole(node, tag);
      if (role) {
        add(node, tag, role);
        if (!["option", "treeitem"].includes(role)) return;
      }
      const isBlock = BLOCKS.has(tag);
      if (isBlock) mark("\n");
      if (/^H[1-6]$/.test(tag)) mark("#".repeat(+tag[1]) + " ");
      if (tag === "LI") mark("- ");
      if (tag === "TD" || tag === "TH") mark(" | ");
      for (let child = getFirst(getShadow(node) || node); child; child = getNext(child)) walk(child, depth + 1);
      if (isBlock) mark("\n");
    };
    if (document.body) walk(document.body, 0);
    const page = {url: address.toWellFormed(), origin: self.origin, title: flatten(document.title)};
    return JSON.stringify({...page, parts, isTruncated});
  };
"""

_ACT: Final = r"""
  const findChange = place => {
    const node = nodes[place];
    if (location.href !== address || !node.isConnected || node.ownerDocument !== document) return {problem: "gone"};
    const now = identify(node), before = known[place];
    const same = ["role", "name", "state", "nearby", "destination"].every(
      each => JSON.stringify(now[each]) === JSON.stringify(before[each]));
    return same ? null : {problem: "changed", now};
  };
  const dispatch = (node, kind, type, options) => node.dispatchEvent(
    new kind(type, {bubbles: true, cancelable: true, composed: true, view: window, ...options}));
  const findTarget = node => {  // the innermost element at its middle, as under a pointer; null if others cover it
    const box = node.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    let hit = document.elementFromPoint(x, y);
    if (!hit || !box.width || !box.height) return {target: node, x, y};
    while (hit.shadowRoot?.elementFromPoint(x, y) && hit.shadowRoot.elementFromPoint(x, y) !== hit)
      hit = hit.shadowRoot.elementFromPoint(x, y);
    for (let each = hit; each; each = getParent(each) || each.host) if (each === node) return {target: hit, x, y};
    return hit.closest("label")?.control === node ? {target: node, x, y} : null;
  };
  const click = node => {
    const {target, x, y} = findTarget(node);
    const at = {clientX: x, clientY: y, detail: 1, button: 0, pointerId: 1, pointerType: "mouse", isPrimary: true};
    for (const each of ["over", "move"]) {
      dispatch(target, PointerEvent, `pointer${each}`, {...at, detail: 0});
      dispatch(target, MouseEvent, `mouse${each}`, {...at, detail: 0});
    }
    const isOpen = dispatch(target, PointerEvent, "pointerdown", {...at, buttons: 1});
    if (!isOpen || dispatch(target, MouseEvent, "mousedown", {...at, buttons: 1})) node.focus({preventScroll: true});
    dispatch(target, PointerEvent, "pointerup", at);
    if (isOpen) dispatch(target, MouseEvent, "mouseup", at);
    if (target.isConnected) dispatch(target, PointerEvent, "click", at);
  };
  const change = (node, data) => {
    dispatch(node, InputEvent, "input", {cancelable: false, data, inputType: "insertReplacementText"});
    dispatch(node, Event, "change", {cancelable: false});
  };
  const isText = node => isEditable(node) || findTag(node) === "TEXTAREA" ||
    findTag(node) === "INPUT" && !NOT_TEXT.has(node.type);
  const type = (node, text, submits) => {
    node.focus();
    if (isEditable(node)) {
      getSelection().selectAllChildren(node);
      document.execCommand(text ? "insertText" : "delete", false, text);
      dispatch(node, Event, "change", {cancelable: false});
    } else {
      node.value = text;
      change(node, text);
    }
    if (submits && node.isConnected) press(node, {key: "Enter", code: "Enter", keyCode: 13});
  };
  const findOption = (node, option) => {
    const all = [...node.options];
    return all.find(each => flatten(each.label) === option) || all.find(each => each.value === option);
  };
  const select = (node, option) => {
    const chosen = findOption(node, option);
    node.focus();
    [...node.options].forEach(each => each.selected = each === chosen);
    change(node, null);
  };
  const obstacles = {
    click: node => {
      node.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
      return node.disabled ? "disabled" : findTarget(node) ? "" : "covered";
    },
    type: node => {
      if (!isText(node) && !["color", "range"].includes(node.type)) return "no field";
      return node.disabled || node.readOnly ? "disabled" : "";
    },
    select: (node, option) => {
      if (findTag(node) !== "SELECT") return "no list";
      const chosen = findOption(node, option);
      if (!chosen) return "no option";
      return node.disabled || chosen.disabled || chosen.closest("optgroup")?.disabled ? "disabled" : "";
    },
    press: node => node.disabled ? "disabled" : "",
  };
"""

_KEYS: Final = r"""
  const activate = node => dispatch(node, PointerEvent, "click", {detail: 0});
  const submit = node => {  // as Enter in a field does
    const form = node.form;
    if (!form) return;
    const elements = [...document.querySelectorAll("button, input")].filter(each => each.form === form);
    const button = elements.find(each => ["submit", "image"].includes(each.type));
    if (button) return button.disabled || activate(button);
    if (elements.filter(isText).length < 2) HTMLFormElement.prototype.requestSubmit.call(form);
  };
  const moveFocus = (node, isBack) => {
    const found = [...document.querySelectorAll(
      "a[href], button, input, select, textarea, summary, iframe, [tabindex], [contenteditable]")].filter(
      each => each === node || each.tabIndex >= 0 && !each.disabled && findTag(each) !== "IFRAME" && isVisible(each));
    const place = found.indexOf(node) + (isBack ? -1 : 1);
    if (found[place]) found[place].focus(); else node.blur();
  };
  const MOVES = {ArrowLeft: ["backward", "character"], ArrowRight: ["forward", "character"],
    ArrowUp: ["backward", "line"], ArrowDown: ["forward", "line"],
    Home: ["backward", "lineboundary"], End: ["forward", "lineboundary"]};
  const SCROLLS = {ArrowUp: -40, ArrowDown: 40, PageUp: -0.9 * innerHeight, PageDown: 0.9 * innerHeight,
    Home: -1e9, End: 1e9, " ": 0.9 * innerHeight};
  const edit = (node, key) => {
    const run = (command, text) => document.execCommand(command, false, text);
    if (node.ownerDocument.activeElement !== node && node.getRootNode().activeElement !== node) return;
    if (key.ctrlKey || key.metaKey) return key.key.toLowerCase() === "a" && run("selectAll");
    if (key.key.length === 1) return run("insertText", key.key);
    if (key.key === "Backspace") return run("delete");
    if (key.key === "Delete") return run("forwardDelete");
    if (MOVES[key.key]) getSelection().modify(key.shiftKey ? "extend" : "move", ...MOVES[key.key]);
  };
  const step = (node, isUp) => {
    if (findTag(node) === "SELECT") {
      const all = [...node.options].filter(each => !each.disabled);
      const next = all[all.indexOf(node.selectedOptions[0]) + (isUp ? -1 : 1)];
      if (next) { next.selected = true; change(node, null); }
    } else if (node.type === "radio") {
      const all = [...document.querySelectorAll("input[type=radio]")].filter(
        each => each.name === node.name && each.form === node.form && !each.disabled);
      const next = all[(all.indexOf(node) + (isUp ? -1 : 1) + all.length) % all.length];
      next.focus();
      activate(next);
    } else {
      isUp ? node.stepUp() : node.stepDown();
      change(node, null);
    }
  };
  const doKey = (node, key) => {
    const tag = findTag(node), isPlain = !key.ctrlKey && !key.altKey && !key.metaKey;
    const isPressable = tag === "SUMMARY" || ["button", "submit", "reset", "image"].includes(node.type);
    if (key.key === "Tab") return moveFocus(node, key.shiftKey);
    if (key.key === "Escape") {
      const dialog = node.closest("dialog[open]");
      return dialog && dispatch(dialog, Event, "cancel", {bubbles: false}) && dialog.close();
    }
    if (key.key === "Enter") {
      if (isPressable || tag === "A" && node.href) return activate(node);
      if (tag === "TEXTAREA" || isEditable(node)) return edit(node, {...key, key: "\n"});
      return tag === "INPUT" && submit(node);
    }
    if (key.key === " " && (isPressable || ["checkbox", "radio"].includes(node.type))) return isPlain && activate(node);
    const arrows = {ArrowUp: true, ArrowLeft: true, ArrowDown: false, ArrowRight: false};
    const isUp = ["ArrowUp", "ArrowRight"].includes(key.key);
    if (["number", "range"].includes(node.type) && key.key in arrows) return step(node, isUp);
    if ((tag === "SELECT" || node.type === "radio") && key.key in arrows) return step(node, arrows[key.key]);
    if (isText(node) && !node.disabled && !node.readOnly) return key.altKey || edit(node, key);
    if (isPlain && key.key in SCROLLS) scrollBy({top: SCROLLS[key.key], behavior: "instant"});
  };
  const press = (node, key) => {
    node.focus();
    const isOpen = dispatch(node, KeyboardEvent, "keydown", key);
    const isSign = (key.key.length === 1 || key.key === "Enter") && !key.ctrlKey && !key.altKey && !key.metaKey;
    const isTyped = isOpen && (!isSign || dispatch(node, KeyboardEvent, "keypress", {...key, charCode: key.keyCode}));
    if (isTyped && node.isConnected) doKey(node, key);
    if (node.isConnected) dispatch(node, KeyboardEvent, "keyup", key);
  };
"""

PAGE_SCRIPT: Final = f"""(() => {{
  const nodes = [], known = [], address = location.href;
{_ELEMENTS}{_READ}{_ACT}{_KEYS}
  const steps = {{click, type, select, press}};
  const check = (place, name, ...given) => findChange(place) || {{problem: obstacles[name](nodes[place], ...given)}};
  const act = (place, name, ...given) => {{
    const found = check(place, name, ...given);
    if (!found.problem) steps[name](nodes[place], ...given);
    return found;
  }};
  return {{read, check, act}};
}})()"""
"""Evaluates to an object with the methods `read(mostCharacters, mostElements)`, `check(place, step, …)` and `act`."""
