"""From a file to the units that rules are asked about: its kernels, launches and host functions, linked."""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from cudalint.facts import flow as flows
from cudalint.facts.assigned import children
from cudalint.facts.expressions import bind_template
from cudalint.facts.model import HostFunction, Kernel, Launch
from cudalint.facts.passed import is_const, methods_of, undefined
from cudalint.facts.roots import distinct, judged
from cudalint.frontend.declare import syntax_of
from cudalint.frontend.typing import decay, fits
from cudalint.ir import nodes as ir
from cudalint.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from cudalint.config import Config
    from cudalint.facts.events import Flow, LaunchEvent
    from cudalint.facts.model import Bindings
    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import Expr, FunctionDecl
    from cudalint.ir.types import Type
    from cudalint.project import Project

_T = TypeVar("_T")

_WORD = re.compile(r"[A-Za-z_]\w*")
_LAUNCH = pattern(rb"<<[ \t]*<|cudaLaunch|hipLaunch")
MAX_HOSTS = 500
"""Host functions walked for one file: dispatch tables written by macros may have thousands, all alike."""
_MAX_BINDINGS = 6
"""Instances of one template that are judged; more add nothing but time."""
_MAX_WALKED = 12_000
"""Statements of all instances of one template together: those after them are judged as the template itself is."""
_MOST_STEPS, _BYTES_A_STEP = 40_000, 2
"""Statements of all device functions of one file together, with what they call, and the further text that allows one
more: a few lines in which each function calls the ones before it come to millions."""


def analyse(
    project: Project, path: str, config: Config, into: str | None = None, through: frozenset[str] | None = None,
    told: Callable[[Exception], None] | None = None, left: Callable[[FunctionDecl, str], None] | None = None,
) -> Iterator[Kernel | Launch | HostFunction]:  # fmt: skip
    """The units of one file: kernels (with all their visible launches), launches, host functions; only those that
    call functions of the file ``into`` that may hold a finding, or that name one of ``through``, if given. With
    ``told`` a fault of ours costs one unit and is told there; ``left`` is told of functions that
    are not looked at since there is too much of them, and what that costs.

    Flows and terms of earlier files are forgotten: a unit is to be used before the next file is analysed.
    """
    flows.forget()
    if into is None:
        if through != frozenset():
            yield from _Analysis(project, project.file(path), config, through, told, left).units()
        return
    through = telling(project, into)
    if through:
        for unit in _Analysis(project, project.file(path), config, through, told).units():
            if any(decl.file.path == into for decl in unit.flow.callees):
                yield unit


_SIZED = pattern(rb"\b(?:cuda|hip)(?:Malloc|HostAlloc|Memcpy|Memset)")
_TELLING = pattern(rb"[\[/%]|<<|sync|shfl|Idx|Dim|atomic")


_told: WeakKeyDictionary[Project, dict[str, frozenset[str]]] = WeakKeyDictionary()


def telling(project: Project, path: str) -> frozenset[str]:
    """The functions of a file that may hold a finding of whoever calls them, and those of its includers that call
    one of them: by their text, for which nothing is walked."""
    known = _told.setdefault(project, {})
    if path not in known:
        known[path] = _telling(project, path)
    return known[path]


def _telling(project: Project, path: str) -> frozenset[str]:
    names = {f.name for f in project.file(path).declarations.functions if f.has_body and _may_tell(f)}
    if not names:
        return frozenset()
    others = []
    for including in project.including(path):
        words = set(_WORD.findall(project.content(including).decode("utf-8", "replace")))
        if words.isdisjoint(names) or (file := project.file(including)).error is not None:
            continue
        for f in file.declarations.functions:
            if f.has_body and f.kind != "kernel":
                others.append((f.name, set(_WORD.findall(f.file.text[f.start : f.end].decode("utf-8", "replace")))))
    while more := {name for name, words in others if name not in names and not words.isdisjoint(names)}:
        names |= more
    return frozenset(names)


def _may_tell(decl: FunctionDecl) -> bool:
    """Whether a function indexes, divides, multiplies, or has threads meet: the rest is a formula of its arguments."""
    text = decl.file.text[decl.start : decl.end]
    if _TELLING.search(text):
        return True
    stack = [syntax_of(decl).node] if b"*" in text else []
    while stack:
        node = stack.pop()
        if node.type == "binary_expression" and any(child.type == "*" for child in node.children):
            return True
        stack.extend(node.named_children)
    return False


_launching: WeakKeyDictionary[Project, dict[str, frozenset[str]]] = WeakKeyDictionary()


def launching_words(project: Project, path: str) -> frozenset[str]:
    """The words of a file that launches; none where it does not. Every file of a folder asks for those beside it."""
    known = _launching.setdefault(project, {})
    found = known.get(path)
    if found is None:
        text = project.content(path)
        words = map(sys.intern, _WORD.findall(text.decode("utf-8", "replace"))) if _LAUNCH.search(text) else ()
        found = known[path] = frozenset(words)
    return found


def forget_words(project: Project, paths: Iterable[str]) -> None:
    """These files have other contents from now on."""
    _told.pop(project, None)
    known = _launching.get(project, {})
    for path in paths:
        known.pop(path, None)
    _told.pop(project, None)


class _Analysis:
    def __init__(
        self, project: Project, file: SourceFile, config: Config, through: frozenset[str] | None = None,
        told: Callable[[Exception], None] | None = None, left: Callable[[FunctionDecl, str], None] | None = None,
    ) -> None:  # fmt: skip
        self.project, self.file, self.config, self.through, self.told = project, file, config, through, told
        self.left = left
        self.words: dict[FunctionDecl, frozenset[str]] = {}
        self.kernels: dict[tuple[FunctionDecl, Bindings], Kernel] = {}
        self.hosts: dict[FunctionDecl, HostFunction] = {}
        self.launches: list[Launch] = []
        self.pointed: set[FunctionDecl] = set()
        self.steps = _MOST_STEPS + len(file.text) // _BYTES_A_STEP
        self.counted: set[Kernel] = set()
        self.passed_over = False

    def attempt(self, step: Callable[[], _T]) -> _T | None:
        """What a step gives; None where it meets a fault of ours, which costs nothing else."""
        try:
            return step()
        except Exception as fault:
            if self.told is None:
                raise
            self.told(fault)
            return None

    def walked(self, kernel: Kernel) -> Flow | None:
        """What a kernel does; None where it cannot be walked, or the file has come to too much already."""
        if kernel in self.counted:
            return self.attempt(lambda: kernel.flow)
        if self.steps <= 0:
            if not self.passed_over:
                self.tell_left(kernel.decl, "this function and more after it were not checked")
            self.passed_over = True
            return None
        self.counted.add(kernel)
        flow = self.attempt(lambda: kernel.flow)
        if flow is not None:
            self.steps -= flow.steps
            if flow.exhausted:
                self.tell_left(kernel.decl, "this function was not checked")
        return flow

    def tell_left(self, decl: FunctionDecl, what: str) -> None:
        if self.left is not None and decl.file.path == self.file.path:
            self.left(decl, f"{what}: with all that is called there is too much to follow")

    def units(self) -> Iterator[Kernel | Launch | HostFunction]:
        declarations = self.file.declarations
        own = [f for f in declarations.functions if f.kind == "kernel" and f.has_body and self.concerns(f)]
        names = {f.name for f in own}
        hosts = self.host_functions(self.file, names)
        if len(hosts) > MAX_HOSTS and self.left is not None:
            self.left(hosts[MAX_HOSTS], "the launches from here on were not checked: the file launches too much")
        for decl in hosts[:MAX_HOSTS]:
            if self.concerns(decl) or self.mentions(decl, names):
                self.attempt(partial(self.run_host, decl))
        self.run_linked(names)
        self.judge()
        self.merge()
        for launch in self.launches:
            # A kernel that could not be walked to its end says nothing of its launches.
            if launch.kernel is not None and ((flow := self.walked(launch.kernel)) is None or not flow.complete):
                launch.kernel = None
        bound = {decl for decl, _ in self.kernels}
        for decl in own:
            if decl not in bound:
                self.kernel(decl, ())
        for (decl, _), kernel in self.kernels.items():
            kernel.pointed = decl in self.pointed
        called: set[FunctionDecl] = set()
        for (decl, _), kernel in list(self.kernels.items()):
            if decl.file.path == self.file.path:
                flow = self.walked(kernel)
                called.update(flow.callees if flow is not None else ())
                if flow is not None and flow.complete:
                    yield kernel
        for decl in declarations.functions:
            if decl.kind not in ("device", "both") or not decl.has_body or decl in called:
                continue
            if self.interesting(decl) and self.concerns(decl):
                alone = Kernel(decl, (), self.config)
                if self.walked(alone) is not None:
                    yield alone
        for host in self.hosts.values():
            if host.decl.file.path == self.file.path:
                yield host
        for decl in self.holders():
            holder = self.attempt(partial(flows.of_host, decl))
            if holder is not None:
                yield HostFunction(decl, holder, self.config)
        yield from distinct([x for x in self.launches if x.event.fn.file.path == self.file.path])

    def holders(self) -> list[FunctionDecl]:
        """The host functions that launch nothing, and whose text sizes memory in several calls."""
        functions = [f for f in self.file.declarations.functions if f.kind == "host" and f.has_body]
        return [
            f
            for f in functions
            if f not in self.hosts
            and b"sizeof" in (text := f.file.text[f.start : f.end])
            and len(_SIZED.findall(text)) > 1
            and self.concerns(f)
        ][:MAX_HOSTS]

    def run_linked(self, names: set[str]) -> None:
        """Walks the host functions of other files that launch this file's kernels, and their callers there."""
        folder = os.path.dirname(self.file.path)
        including = set(self.project.including(self.file.path))
        # Beside the file a name must have one meaning; where the file is included it is this very kernel.
        alone = {
            name
            for name in names
            if not any(
                self.defines(path, name) for path in self.project.defining(folder, name) if path != self.file.path
            )
        }
        for path in self.project.linked(self.file.path) if names else ():
            wanted = (names if path in including else alone) & launching_words(self.project, path)
            if not wanted:
                continue
            other = self.project.file(path)
            if other.error is not None:
                continue
            for decl in self.host_functions(other):
                if len(self.hosts) >= MAX_HOSTS:
                    return
                if decl not in self.hosts and self.mentions(decl, wanted):
                    self.attempt(partial(self.run_host, decl))
                    wanted.add(decl.name)

    def judge(self) -> None:
        """Leaves each launch to the walks that rules judge, and drops kernels that only the others launch."""
        self.launches = judged(self.launches)
        kept = set(self.launches)
        for host in self.hosts.values():
            host.launches = [x for x in host.launches if x in kept]
        for key, kernel in list(self.kernels.items()):
            before = kernel.launches
            kernel.launches = [x for x in before if x in kept]
            if before and not kernel.launches and any(d is key[0] for d, b in self.kernels if b != key[1]):
                del self.kernels[key]

    def merge(self) -> None:
        """Leaves the launches of a template's further instances to the template, where its instances are long."""
        walked: dict[FunctionDecl, int] = {}
        for key, kernel in list(self.kernels.items()):
            decl, bindings = key
            if not bindings:
                continue
            before = walked.setdefault(decl, 0)
            if before < _MAX_WALKED:
                flow = self.walked(kernel)
                walked[decl] += flow.steps if flow is not None else 0
                continue
            del self.kernels[key]
            template = self.kernels.setdefault((decl, ()), Kernel(decl, (), self.config))
            for launch in kernel.launches:
                launch.turn_to(template)

    def interesting(self, decl: FunctionDecl) -> bool:
        """Whether a device function can hold a hazard of its own: it has a barrier or launch built-ins."""
        text = decl.file.text[decl.start : decl.end]
        return b"sync" in text or b"blockIdx" in text

    def host_functions(self, file: SourceFile, kernels: AbstractSet[str] = frozenset()) -> list[FunctionDecl]:
        """The host functions that launch, directly or through functions of the same file that they call, or that name
        one of ``kernels``: a header's function may launch what it is handed."""
        declarations = file.declarations
        launching = [f for f in declarations.launch_sites if f.has_body and f.kind != "device"]
        if kernels:
            hosts = [f for f in declarations.functions if f.has_body and f.kind == "host"]
            launching += [f for f in hosts if self.mentions(f, kernels)]
        if not launching:
            return []
        found = dict.fromkeys(launching)
        names = {f.name for f in found}
        for _ in range(2):
            more = [
                f
                for f in declarations.functions
                if f.has_body and f.kind == "host" and f not in found and self.mentions(f, names)
            ]
            if not more:
                break
            found.update(dict.fromkeys(more))
            names = {f.name for f in more}
        return sorted(found, key=lambda f: f.start)

    def concerns(self, decl: FunctionDecl) -> bool:
        """Whether a function names what is asked about."""
        return self.through is None or self.mentions(decl, self.through)

    def mentions(self, decl: FunctionDecl, names: AbstractSet[str]) -> bool:
        words = self.words.get(decl)
        if words is None:
            text = decl.file.text[decl.start : decl.end].decode("utf-8", "replace")
            words = self.words[decl] = frozenset(_WORD.findall(text))
        return not names.isdisjoint(words)

    def run_host(self, decl: FunctionDecl) -> None:
        flow = flows.of_host(decl)
        host = HostFunction(decl, flow, self.config)
        self.hosts[decl] = host
        if flow.launches and decl.owner and any(is_const(x) for x in flow.members.values() if x.op == "atom"):
            flow.constructors = self.constructors(decl)
        for event in flow.launches:
            target = self.resolve(event)
            kernel = None
            if target is not None:
                kernel = self.kernel(target, self.bindings(target, event))
            launch = Launch(event, flow, kernel, self.config)
            host.launches.append(launch)
            self.launches.append(launch)
            if kernel is not None:
                kernel.launches.append(launch)
        if any(event.kernel is None and event.node.callee is not None for event in flow.launches):
            self.pointed.update(named(flow))
        for bound, specials in islice(self.specials(decl, flow).items(), _MAX_BINDINGS):
            instance = flows.walk(decl, dict(bound))
            for event in instance.launches:
                special = self.resolve(event)
                if special is not None and special in specials:
                    kernel = self.kernel(special, ())
                    launch = Launch(event, instance, kernel, self.config)
                    self.launches.append(launch)
                    kernel.launches.append(launch)

    def constructors(self, decl: FunctionDecl) -> list[FunctionDecl]:
        """The constructors of a method's class that are declared in a header which another file includes to define
        them."""
        declared = undefined(methods_of(decl))
        if not declared:
            return []
        name = declared[0].name
        written = f"{name}::{name}".encode()
        paths = [x for x in self.project.including(declared[0].file.path) if written in self.project.content(x)]
        files = [x for x in map(self.project.file, paths) if x.error is None]
        found = [f for x in files for f in x.declarations.functions_by_name.get(name, ())]
        return [f for f in found if f.owner == decl.owner and f.has_body]

    def specials(self, decl: FunctionDecl, flow: Flow) -> dict[Bindings, set[FunctionDecl]]:
        """The kernels that are no templates (``template<>``, overloads) to which the launches of a host template come
        in some of its instances, by what its parameters are there; those that it launches by their own types already
        are for these to launch."""
        own = {name for name, _ in decl.template}
        found: dict[Bindings, set[FunctionDecl]] = {}
        chosen = {self.resolve(event) for event in flow.launches} if own else set()
        for event in flow.launches if own else ():
            target = event.kernel.decl if event.kernel is not None else event.node.target
            if target is None or not target.template:
                continue
            for other in self.overloads(target):
                bound = self.takes(other, target, event.node.args or ())
                if bound and bound.keys() <= own and other not in chosen:
                    found.setdefault(tuple(sorted(bound.items())), set()).add(other)
        return found

    def kernel(self, decl: FunctionDecl, bindings: Bindings) -> Kernel:
        key = (decl, bindings)
        found = self.kernels.get(key)
        if found is None:
            if bindings and sum(d is decl for d, _ in self.kernels) >= _MAX_BINDINGS:
                key = (decl, ())
                found = self.kernels.get(key)
            if found is None:
                found = self.kernels[key] = Kernel(decl, key[1], self.config)
        return found

    def bindings(self, target: FunctionDecl, event: LaunchEvent) -> Bindings:
        if not target.template:
            return ()
        node = event.node
        args = [a.type for a in node.args if a is not None] if node.args is not None and None not in node.args else []

        def value_of(expr: object) -> int | None:
            term = event.targs.get(id(expr))
            return term.data if term is not None and term.op == "const" and isinstance(term.data, int) else None

        targs = event.kernel.targs if event.kernel is not None else node.targs
        bound = bind_template(target, targs, args, value_of)
        return tuple(sorted(bound.items()))

    def resolve(self, event: LaunchEvent) -> FunctionDecl | None:
        """The definition of the kernel that is launched: in the unit, else the only one of that name beside it."""
        target = event.kernel.decl if event.kernel is not None else event.node.target
        if target is not None and target.has_body:
            return self.specialised(target, event) if target.kind == "kernel" else None
        name = (target.name if target is not None else event.node.kernel.rsplit("::", 1)[-1]) or None
        if name is None:
            return None
        found = [
            f
            for path in self.project.defining(os.path.dirname(event.fn.file.path), name)
            for f in self.defines(path, name)
        ]
        return found[0] if len(found) == 1 else None

    def defines(self, path: str, name: str) -> list[FunctionDecl]:
        """The kernels of that name with a body in a file."""
        file = self.project.file(path)
        if file.error is not None:
            return []
        return [f for f in file.declarations.functions_by_name.get(name, ()) if f.kind == "kernel" and f.has_body]

    def overloads(self, target: FunctionDecl) -> list[FunctionDecl]:
        """The kernels with a body that have a kernel's name, itself among them."""
        return [
            f
            for f in target.file.declarations.functions_by_name.get(target.name, ())
            if f.kind == "kernel" and f.has_body and f.qualname == target.qualname
        ]

    def takes(
        self, decl: FunctionDecl, named: FunctionDecl, args: Sequence[Expr | None]
    ) -> dict[str, Type | int] | None:
        """What the open types of arguments have to be for them to be exactly those of a kernel that is no template,
        None where nothing does that: an overload of the kernel ``named``, or a specialisation, for which that one's
        default arguments stand."""
        if decl.template or len(args) > len(decl.params) or len(decl.params) not in (len(args), len(named.params)):
            return None
        bound: dict[str, Type | int] = {}
        pairs = zip(args, decl.lower({}).params)
        return bound if all(a is None or fits(decay(a.type), p.type, bound) for a, p in pairs) else None

    def specialised(self, target: FunctionDecl, event: LaunchEvent) -> FunctionDecl:
        """The kernel of that name whose parameters have exactly the arguments' types: an overload, `template<>`."""
        same = self.overloads(target)
        args = event.node.args
        if len(same) < 2 or not args:
            return target
        exact = [f for f in same if self.takes(f, target, args) == {}]
        return exact[0] if len(exact) == 1 else target


def named(flow: Flow) -> Iterator[FunctionDecl]:
    """The functions that a host function, and what was walked in place of its calls, names as values."""
    for function in flow.bodies:
        stack: list[object] = [function.body]
        while stack:
            item = stack.pop()
            if isinstance(item, ir.Name):
                yield from function.file.declarations.scope.functions(item.name)
            stack.extend(children(item))


__all__ = ["analyse"]
