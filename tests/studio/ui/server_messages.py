"""What the server can say to a visitor, read from its source: errors, cards, fields, reasons and notes.

A message is a text with `{expression}` where the server writes a value; one that is put together from several texts is
listed once with each of them. Found are the arguments of what `SINKS` names, and of every function that hands its own
argument on to one of these; what is returned or named elsewhere is looked up there.
"""

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_FORMS = 64
MAX_DEPTH = 8
ROOT_ERROR = "LumeshError"
FIELD_ERRORS = frozenset({"RecipeError", "PromptRefusedError"})

# A call's name: the positions and keywords of it that visitors read.
SINKS: dict[str, frozenset[int | str]] = {
    "Card": frozenset({0, 1, 2, "title", "detail", "advice"}),
    "Unusable": frozenset({0, 1, "what", "why"}),
    "ValueError": frozenset({0}),
    "make_error": frozenset({"title", "detail", "advice"}),
    "Refusal": frozenset({"detail"}),
    "NotPublicError": frozenset({0}),
    "PlaceInLine": frozenset({1}),
}
ERROR_WORDS: frozenset[int | str] = frozenset({0, "detail", "title", "advice"})
LISTS = frozenset({"notes", "advice", "reasons"})  # what stands in them, or is appended to them
TABLES = frozenset({"problems", "fields"})  # what is put into them
NAMED = frozenset({"reason", "refusal", "activity", "advice"})  # what is passed by these names
TELLING = frozenset({"post", "_suggest_shapes", "_suggest_topologies", "_explain_missing"})  # what these return
TOLD = frozenset({"TAKEN", "SOURCE"})  # sent as they are
CONSTANTS = frozenset({"PLAIN_MESSAGES", "_WHY", "messages"})  # tables of messages


@dataclass(frozen=True)
class Found:
    file: str
    line: int
    text: str


@dataclass
class Function:
    """`parent` is the function around it; what a name was given anywhere in it, and what it returns."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    parent: "Function | None"
    parameters: list[str]
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict[str, list[ast.expr]])
    returned: list[ast.expr] = field(default_factory=list[ast.expr])


@dataclass
class Module:
    path: str
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    constants: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])
    imported: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    calls: list[tuple[ast.AST, Function | None]] = field(default_factory=list[tuple[ast.AST, Function | None]])


class _Reader(ast.NodeVisitor):
    """One module's functions, names and places to look at."""

    def __init__(self, module: Module) -> None:
        self.module, self.function = module, None

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        outer: Function | None = self.function
        self.function = Function(node, outer, [one for one in arguments if one not in ("self", "cls")])
        self.module.functions.setdefault(node.name, self.function)
        self.generic_visit(node)
        self.function = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - as ast calls it

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self._look(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)
        self._look(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its in zip(target.elts, value.elts, strict=False):
                self._assign(one, its)
        elif isinstance(target, ast.Tuple):
            for one in target.elts:
                self._assign(one, value)
        elif isinstance(target, ast.Name) and self.function is None:
            self.module.constants[target.id] = value
        elif isinstance(target, ast.Name) and self.function is not None:
            self.function.assigned.setdefault(target.id, []).append(value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """`advice += more` says what it said before, or that with more behind it."""
        if isinstance(node.target, ast.Name) and self.function is not None:
            given = self.function.assigned.setdefault(node.target.id, [])
            given += [ast.BinOp(one, ast.Add(), node.value) for one in list(given)]
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and self.function is not None:
            self.function.returned.append(node.value)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for name in node.names:
            self.module.imported[name.asname or name.name] = (node.module or "", name.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.module.calls.append((node, self.function))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._look(node)

    def _look(self, node: ast.AST) -> None:
        self.module.calls.append((node, self.function))
        self.generic_visit(node)


class Messages:
    """All messages of the modules under `folders`."""

    def __init__(self, root: Path, folders: tuple[str, ...]) -> None:
        self.modules: dict[str, Module] = {}
        for file in sorted(file for folder in folders for file in (root / folder).rglob("*.py")):
            module = Module(file.relative_to(root).as_posix())
            _Reader(module).visit(ast.parse(file.read_text("utf-8")))
            self.modules[".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")] = module
        self.errors = self._find_errors()
        self.sinks: dict[str, set[int | str]] = {name: set(parts) for name, parts in SINKS.items()}
        for name in self.errors:
            self.sinks[name] = set() if name in FIELD_ERRORS else set(ERROR_WORDS)
        self.found = set[Found]()
        while True:  # until no function more hands its own argument on
            known = sum(map(len, self.sinks.values()))
            for module in self.modules.values():
                self._read(module)
            if known == sum(map(len, self.sinks.values())):
                break

    def _find_errors(self) -> set[str]:
        bases = {
            node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
            for module in self.modules.values()
            for node, _ in module.calls
            if isinstance(node, ast.ClassDef)
        }
        found = {ROOT_ERROR}
        while more := {name for name, its in bases.items() if its & found} - found:
            found |= more
        return found

    def _read(self, module: Module) -> None:
        for name, function in module.functions.items():
            for returned in function.returned if name in TELLING else ():
                for one in self._list_told(returned):
                    self._take(module, function, one)
        for node, function in module.calls:
            if isinstance(node, ast.ClassDef):
                self._read_class(module, node)
            elif isinstance(node, ast.Call):
                self._read_call(module, function, node)
            else:
                assert isinstance(node, ast.Assign | ast.AnnAssign)
                self._read_assignment(module, function, node)

    def _read_class(self, module: Module, node: ast.ClassDef) -> None:
        for one in node.body:
            if node.name in self.errors and isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "title":
                self._take(module, None, one.value)

    def _read_call(self, module: Module, function: Function | None, node: ast.Call) -> None:
        name = _name_of(node.func)
        wanted = self.sinks.get(name, set())
        arguments: list[tuple[int | str | None, ast.expr]] = [*enumerate(node.args)]
        arguments += [(keyword.arg, keyword.value) for keyword in node.keywords]
        for place, value in arguments:
            is_read = place in wanted or place in NAMED
            if isinstance(value, ast.Dict) and (name in FIELD_ERRORS or place == "fields"):
                for one in value.values:
                    self._take(module, function, one)
            elif is_read and not isinstance(value, ast.Dict):
                self._take(module, function, value)
        is_listed = isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        if is_listed and _name_of(node.func.value) in LISTS:  # pyright: ignore[reportAttributeAccessIssue]
            self._take(module, function, node.args[0])

    def _read_assignment(self, module: Module, function: Function | None, node: ast.Assign | ast.AnnAssign) -> None:
        value, told = node.value, list[ast.expr]()
        if value is None:
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            name = _name_of(target)
            if name in LISTS and isinstance(value, ast.List):
                told += value.elts
            elif name in CONSTANTS and isinstance(value, ast.Dict):
                told += value.values
            elif name in TOLD and isinstance(value, ast.Constant):
                told += [value] if " " in str(value.value) else []  # not the name of another program
            elif (isinstance(target, ast.Subscript) and _name_of(target.value) in TABLES) or (
                isinstance(target, ast.Attribute) and target.attr in NAMED
            ):
                told.append(value)
        for one in told:
            self._take(module, function, one)

    def _list_told(self, node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.List):
            return node.elts
        if isinstance(node, ast.Dict):
            return [value for key, value in zip(node.keys, node.values, strict=True) if _is_word(key)]
        return [node]

    def _take(self, module: Module, function: Function | None, node: ast.expr) -> None:
        names = ast.walk(node) if isinstance(node, ast.Name | ast.BoolOp | ast.IfExp) else ()
        for name in [one.id for one in names if isinstance(one, ast.Name)]:
            owner = function
            while owner is not None:
                if name in owner.parameters and name not in owner.assigned:
                    self.sinks.setdefault(owner.node.name, set()).update({owner.parameters.index(name), name})
                owner = owner.parent
        for text in self._say(module, function, node, MAX_DEPTH) or []:
            is_whole = text == text.strip()  # what ends in a space lacks a value that is never empty there
            if is_whole and any(sign.isalpha() for sign in _without_values(text)):
                self.found.add(Found(module.path, node.lineno, text))

    def _say(self, module: Module, function: Function | None, node: ast.expr, depth: int) -> list[str] | None:
        """Every text that an expression can be; None where only running it would tell."""
        if depth == 0:
            return None
        say = lambda one: self._say(module, function, one, depth - 1)  # noqa: E731
        match node:
            case ast.Constant(value=str(text)):
                return [text.replace("{", "{{").replace("}", "}}")]
            case ast.JoinedStr(values=values):
                return _join([say(value) or [] for value in values])
            case ast.FormattedValue(value=value, conversion=conversion):
                texts = say(value) if conversion == -1 else None
                return texts or [_name_value(value)]
            case ast.IfExp(body=body, orelse=orelse):
                either = say(body), say(orelse)
                if either == (None, None):
                    return None
                return [text for texts in either for text in texts or [_name_value(node)]]
            case ast.BoolOp(values=values):
                texts = [text for value in values for text in say(value) or []]
                return texts or None
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                before, after = say(left), say(right)
                return _join([before, after]) if before and after else None
            case ast.Name(id=name):
                return self._say_name(module, function, name, depth)
            case ast.Call():
                return self._say_call(module, function, node, depth)
            case ast.Subscript(value=ast.JoinedStr() as cut, slice=ast.Slice()):
                return say(cut)
            case ast.Subscript(value=ast.Name(id=name)) if isinstance(table := module.constants.get(name), ast.Dict):
                return [text for value in table.values for text in say(value) or []] or None
            case _:
                return None

    def _say_name(self, module: Module, function: Function | None, name: str, depth: int) -> list[str] | None:
        while function is not None:
            if name in function.assigned:
                given = [self._say(module, function, one, depth - 1) for one in function.assigned[name]]
                return [text for texts in given for text in texts or ["{" + name + "}"]] if any(given) else None
            if name in function.parameters:
                return None
            function = function.parent
        if name in module.constants:
            return self._say(module, None, module.constants[name], depth - 1)
        if name in module.imported:
            source, own = module.imported[name]
            if source in self.modules and own in self.modules[source].constants:
                return self._say(self.modules[source], None, self.modules[source].constants[own], depth - 1)
        return None

    def _say_call(self, module: Module, function: Function | None, node: ast.Call, depth: int) -> list[str] | None:
        name, called = _name_of(node.func), None
        if name in ("shorten", "str"):
            return self._say(module, function, node.args[0], depth - 1)
        if isinstance(node.func, ast.Name) or _name_of(getattr(node.func, "value", node.func)) == "self":
            called, where = module.functions.get(name), module
            if called is None and name in module.imported:
                source, own = module.imported[name]
                where = self.modules.get(source, module)
                called = where.functions.get(own) if source in self.modules else None
            if called is not None:
                called = self._hand_over(module, function, node, called, depth)
                texts = [text for one in called.returned for text in self._say(where, called, one, depth - 1) or []]
                return texts or None
        if name in ("strip", "removesuffix", "capitalize") and isinstance(node.func, ast.Attribute):
            return self._say(module, function, node.func.value, depth - 1)
        return None

    def _hand_over(
        self, module: Module, function: Function | None, node: ast.Call, called: Function, depth: int
    ) -> Function:
        """The function that is called, with those of its arguments whose text is known."""
        arguments = [*zip(called.parameters, node.args, strict=False), *((one.arg, one.value) for one in node.keywords)]
        known = dict[str, list[ast.expr]]()
        for name, value in arguments:
            texts = self._say(module, function, value, depth - 1)
            if name and texts:
                known[name] = [_spell(text) for text in texts]
        return Function(called.node, called.parent, called.parameters, {**called.assigned, **known}, called.returned)


def _spell(text: str) -> ast.expr:
    """The expression that says a text found before."""
    parts = [(part, is_value) for part, is_value in split(text) if part]
    return ast.JoinedStr(
        [ast.FormattedValue(ast.Name(part), -1) if is_value else ast.Constant(part) for part, is_value in parts]
    )


def _name_value(node: ast.expr) -> str:
    return "{" + ast.unparse(node).replace("{", "").replace("}", "") + "}"


def _join(parts: list[list[str]]) -> list[str]:
    return ["".join(form) for form in itertools.islice(itertools.product(*parts), MAX_FORMS)]


def _is_word(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and key.value in ("title", "detail", "advice")


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def split(text: str) -> Iterator[tuple[str, bool]]:
    """A message's own words and its values in turn, and whether it is a value."""
    kept, depth, at = "", 0, 0
    while at < len(text):
        sign, pair = text[at], text[at : at + 2]
        if depth == 0 and pair in ("{{", "}}"):
            kept, at = kept + sign, at + 2
            continue
        if sign == "{":
            yield kept, False
            kept, depth = "", 1
        elif sign == "}":
            yield kept, True
            kept, depth = "", 0
        else:
            kept += sign
        at += 1
    yield kept, False


def _without_values(text: str) -> str:
    return "".join(part for part, is_value in split(text) if not is_value)


def find_messages(root: Path) -> list[Found]:
    return sorted(Messages(root, ("pipelines", "studio")).found, key=lambda one: (one.file, one.line, one.text))
