"""What the width rules share: where a product was formed, bounds of an index, the sizes that start enough blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cudalint.facts import grids, search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts
from cudalint.facts.ids import BDIM, GDIM
from cudalint.facts.kernels import ids_of
from cudalint.facts.model import GRID_X_MAX, GRID_YZ_MAX
from cudalint.ir import nodes as ir
from cudalint.ir.types import Int
from cudalint.lazy import NamedTuple
from cudalint.rules.draft import EditDraft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cudalint.config import Config
    from cudalint.facts.events import Comparison, Event, Flow, Operation
    from cudalint.facts.model import Launch
    from cudalint.facts.reach import Reach
    from cudalint.facts.terms import Term
    from cudalint.ir.nodes import Expr, Function

Triple = tuple[int, int, int]
_Main = TypeVar("_Main")
#: A grid where the source gives none: the multiprocessors of a small GPU, a few blocks on each.
DEVICE_BLOCKS = w.SM_COUNT * w.BLOCKS_PER_SM
_AXES = "xyz"
_GIVEN = frozenset({"device", "sizeof", "bdim", "name"})
"""Atoms that are no size of the data, whatever they stand in."""
_NO_NAMES: Mapping[Term, str] = {}
_NO_SIZES: Mapping[Term, int] = {}
_LAST = 1 << 62
_TILE = 1 << 12
"""Constants up to here may be what the host checks a size to be a multiple of."""


def origin(flow: Flow, term: Term, event: Event) -> Operation | None:
    """Where the product or quotient ``term`` that ``event`` uses was formed: in its expression, else last before it."""
    last = None
    for operation in flow.operations:
        if operation.term is term and operation.seq < event.seq:
            last = operation
            if operation.fn is event.fn and inside(operation.node, event.node):
                return operation
    return last


def inside(node: ir.Node, outer: ir.Node) -> bool:
    return outer.start <= node.start and node.end <= outer.end


def products(term: Term) -> Iterator[Term]:
    """The largest products of 32 bits that a 32-bit value is made of, through sums, quotients and choices."""
    stack, seen = [term], set()
    while stack:
        item = stack.pop()
        if item in seen or not (isinstance(item.type, Int) and item.type.bits == 32):
            continue
        seen.add(item)
        if item.op in ("mul", "shl"):
            yield item
        elif item.op in ("add", "sub", "min", "max", "cast", "div", "shr", "neg"):
            stack.extend(item.args)
        elif item.op == "select":
            stack.extend(item.args[1:])


def narrowed(term: Term) -> Iterator[tuple[Term, Int]]:
    """The 64-bit values that a 32-bit one keeps the lower half of, with the type they were narrowed to."""
    stack, seen = [term], set()
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if (
            item.op == "cast"
            and isinstance(item.type, Int)
            and item.type.bits == 32
            and (isinstance(item.args[0].type, Int) and item.args[0].type.bits == 64)
        ):
            yield item.args[0], item.type
        elif item.op in ("cast", "add", "sub", "mul", "min", "max", "neg"):
            stack.extend(item.args)
        elif item.op == "select":
            stack.extend(item.args[1:])


def is_quotient(count: Term) -> bool:
    """A number of blocks, already divided by their size."""
    stack = [count]
    while stack:
        item = stack.pop()
        if item.op in ("div", "shr"):
            divisor = item.args[1]
            return divisor.op != "const" or divisor.data >= (16 if item.op == "div" else 4)
        if item.op in ("add", "sub", "cast", "min", "max"):
            stack.extend(item.args)
        elif item.op == "select":
            stack.extend(item.args[1:])
    return False


class Bound(NamedTuple):
    """A comparison of something made of launch ids (``value``) with something that is not, both before conversion."""

    value: Term
    limit: Term
    ids: set[Term]
    event: Comparison


def bounds(flow: Flow) -> list[Bound]:
    """The comparisons of a kernel that can bound an index."""
    result = []
    for event in flow.comparisons:
        if event.op in ("==", "!="):
            continue
        left, right = event.raw
        if isinstance(left.type, Int) and isinstance(right.type, Int):
            of_left, of_right = ids_of([left]), ids_of([right])
            if of_left and not of_right:
                result.append(Bound(left, right, of_left, event))
            elif of_right and not of_left:
                result.append(Bound(right, left, of_right, event))
    return result


def block_of(launch: Launch | None, config: Config) -> Triple:
    """The block of a witness: the launch's where it is known, else the configured size on x."""
    if launch is not None and launch.block is not None:
        known = [launch.known_block(a) for a in _AXES]
        if None not in known:
            x, y, z = (k or 1 for k in known)
            return x, y, z
    return config.block_size, 1, 1


def smallest(low: int, high: int, enough: Callable[[int], bool]) -> int | None:
    """The smallest value in [low, high] that is ``enough``, for a test that larger values pass too."""
    if low > high or not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low


def value(term: Term, env: dict[Term, int], *, exact: bool = True) -> int | None:
    """The value of a term, None where it has none."""
    found = t.evaluated(term, env, exact)
    return int(found) if isinstance(found, (int, float)) else None


def tries(mains: Sequence[_Main]) -> Iterator[tuple[_Main, int]]:
    """The values to vary, each with what all others are: 1, or 2 or 0 where a test (`argc > 1`) asks for that."""
    return ((main, others) for others in (1, 2, 0) for main in mains)


def defaults(launch: Launch | None, leaves: AbstractSet[Term], config: Config) -> dict[Term, int]:
    """Values for what is no size of the data: block sizes, what the device answers, numbers of blocks."""
    block = grids.block_sizes(launch) if launch is not None else set()
    grid = {x for item in launch.grid or () for x in t.leaves(item)} if launch is not None else set()
    result = {}
    for leaf in sorted(leaves, key=lambda x: x.key):  # a set has an order of its own in each run
        known = w.assumed(leaf)
        if leaf.data.kind == "bdim":
            result[leaf] = block_of(launch, config)[_AXES.index(leaf.data.axis)]
        elif leaf.data.kind == "gdim":
            result[leaf] = DEVICE_BLOCKS if leaf.data.axis == "x" else 1
        elif known is not None:
            result[leaf] = known
        elif leaf in block and launch is not None:
            result[leaf] = launch.usual_block(leaf)
        elif leaf.data.kind == "sizeof":
            result[leaf] = 4
        elif leaf in grid and launch is not None and any(t.bare(g) is leaf for g in launch.grid or ()):
            result[leaf] = DEVICE_BLOCKS
    return result


def others_at(launch: Launch | None, leaves: Iterable[Term], others: int, config: Config) -> dict[Term, int]:
    """Values of sizes while another one is varied: ``others``, or the least that is allowed of those that the host
    holds a size against, and a block's usual size for one of which the block is made (``n / 8`` threads), so that there
    is a block to speak of."""
    block = {x for item in launch.block or () for x in t.leaves(item)} if launch is not None else set()
    usual = config.block_size
    checks = _checks(launch) if launch is not None else {}
    return {
        x: usual if x in block and x.data.kind != "name" and x.data.hi >= usual else _allowed(x, others, checks)
        for x in sorted(leaves, key=lambda x: x.key)
    }


def _checks(launch: Launch) -> dict[Term, list[Term]]:
    """The host's checks of one size alone, by that size."""
    if "checks" not in launch.answers:
        found: dict[Term, list[Term]] = {}
        for condition in launch.conditions:
            if len(leaves := t.leaves(condition)) == 1:
                found.setdefault(next(iter(leaves)), []).append(condition)
        launch.answers["checks"] = found
    return launch.answers["checks"]  # type: ignore[return-value]  # put there above


def _allowed(size: Term, usual: int, checks: Mapping[Term, list[Term]]) -> int:
    asked = checks.get(size, [])
    tries = (usual, *sorted(int(c) for c in w.constants(asked))) if asked else ()
    return next((n for n in tries if all(w.allowed(c, {size: n}) for c in asked)), usual)


def sizes_for(
    launch: Launch, wanted: Triple, config: Config, given: Mapping[Term, int] = _NO_SIZES
) -> dict[Term, int] | None:
    """The smallest host sizes at which the launch has at least the ``wanted`` blocks along an axis where these are
    several, and blocks along the others, with the sizes that are ``given`` where that can be; None where none is found.
    """
    # by every index of the kernel, most of which need the same grid
    asked = ("sizes for", wanted, *given.items())
    if asked not in launch.answers:
        found = _sizes_for(launch, wanted, config, given)
        launch.answers[asked] = _sizes_for(launch, wanted, config, _NO_SIZES) if found is None and given else found
    return launch.answers[asked]  # type: ignore[return-value]  # put there above


def _sizes_for(launch: Launch, wanted: Triple, config: Config, given: Mapping[Term, int]) -> dict[Term, int] | None:
    if launch.grid is None:
        return None
    leaves = {x for blocks in launch.grid for x in t.leaves(blocks)}
    # A whole axis of the grid is a size of the data, where it is not a block's too.
    whole = {t.bare(blocks) for blocks in launch.grid} - grids.block_sizes(launch)
    known = {x: v for x, v in defaults(launch, leaves, config).items() if x not in whole or w.assumed(x) is not None}
    fixed = {**known, **given}
    axes = sorted(zip(launch.grid, wanted, (GRID_X_MAX, GRID_YZ_MAX, GRID_YZ_MAX)), key=lambda axis: -axis[1])
    main_grid = axes[0][0]
    mains: list[Term | None] = [*_free(main_grid, fixed)] or [None]
    free = {x for x in leaves if x not in fixed}
    for main, others in tries(mains):
        env = {**others_at(launch, free, others, config), **fixed}
        moved: set[Term] = set()
        for blocks, least, most in axes:
            first = [main] if blocks is main_grid and main is not None else []
            movable = first or [x for x in _free(blocks, fixed) if x not in moved]
            grown = _grown(blocks, least, env, movable, config)
            if grown is None or (value(blocks, grown, exact=False) or 0) > most:
                break
            env, moved = grown, moved | t.leaves(blocks)
        else:
            if w.completed(env, launch.conditions) is not None:
                return env
    return None


def _free(blocks: Term, fixed: Mapping[Term, int]) -> list[Term]:
    """The sizes that blocks are made of, the widest first; what is passed as it is counts even if it has a value."""
    free = (x for x in t.leaves(blocks) if x not in fixed or t.bare(blocks) is x)
    return sorted(free, key=lambda x: (-x.data.hi, x.key))


def _grown(
    blocks: Term, least: int, env: dict[Term, int], mains: Sequence[Term], config: Config
) -> dict[Term, int] | None:
    """``env`` where it gives ``least`` blocks, else with the smallest value that does so of the first of ``mains`` that
    has one; an axis whose blocks nobody can count has them."""
    now = value(blocks, env, exact=False)
    if now is not None and now >= least:
        return env
    for main in mains:
        high = main.data.hi if config.max_elements is None else min(main.data.hi, config.max_elements)
        # `1UL << n`: n stays below the type's width
        shifts = (x for x in t.inside([blocks]) if x.op in ("shl", "shr") and t.bare(x.args[1]) is main)
        high = min([high, _LAST, *(x.type.bits - 1 for x in shifts if isinstance(x.type, Int))])

        def enough(n: int, main: Term = main) -> bool:
            found = value(blocks, {**env, main: n}, exact=False)
            return found is not None and found >= least

        enlarged = smallest(1, high, enough)
        if enlarged is not None:
            return {**env, main: enlarged}
    return env if now is None and least == 1 else None


def on_the_way(launch: Launch, event: Event) -> list[Term]:
    """What holds where the launch is reached and something that it uses, evaluated before."""
    return list(dict.fromkeys([*launch.conditions, *conjuncts(event.guard)]))


def contradictory(conditions: Iterable[Term]) -> bool:
    """Whether no path leads through all of these conditions: one is another's contrary, or asks for another value, as
    two cases of one ``switch`` do."""
    found: set[Term] = set()
    stack = list(conditions)
    while stack:
        term = stack.pop()
        if term.op == "land":
            stack.extend(term.args)
        elif term.op == "select" and t.FALSE in term.args[1:]:
            # A flag that is set on one side of a branch alone.
            cond, one, other = term.args
            stack.extend((cond, one) if other is t.FALSE else (t.lnot(cond), other))
        else:
            found.add(term)
    cases: dict[Term, Term] = {}
    equal = [x.args for x in found if x.op == "eq" and x.args[1].op == "const"]
    return any(t.lnot(x) in found for x in found) or any(cases.setdefault(x, value) is not value for x, value in equal)


_PARTS = frozenset({"mod", "div", "and", "mul", "shl", "shr"})


def multiples(launch: Launch) -> list[int]:
    """Numbers that the host may ask a size to be a multiple of."""
    given = {x.data for term in t.inside(launch.conditions) if term.op in _PARTS for x in term.args if x.op == "const"}
    return sorted(c for c in given if isinstance(c, int) and 1 < c <= _TILE)


def passing(
    term: Term, top: int, launch: Launch, reach: Reach, mains: Callable[[Term], bool]
) -> tuple[dict[Term, int], Term] | None:
    """The smallest host sizes at which ``term`` is more than ``top``, and the size that makes it so: one of ``mains``.

    None where the host's checks or the types let it come to no such size.
    """
    leaves = search.ordered([term], [])
    block = {x for item in launch.block or () for x in t.leaves(item)}
    known = defaults(launch, set(leaves), launch.config)
    fixed = {x: v for x, v in known.items() if x.data.kind in _GIVEN or (x in block and not mains(x))}
    asked = [x for x in search.ordered(launch.conditions, []) if x.data.kind == "device"]
    fixed.update({x: v for x in (*asked, *leaves) if (v := w.assumed(x)) is not None})
    free = sorted((x for x in leaves if x not in fixed and mains(x)), key=lambda x: (-reach.high(x), x.key))
    steps, edges = multiples(launch), [int(c) for c in w.constants(launch.conditions)]
    for main, others in tries(free):
        env = {**dict.fromkeys(leaves, others), **fixed}

        def over(n: int, main: Term = main, env: dict[Term, int] = env) -> bool:
            found = value(term, {**env, main: n}, exact=False)
            return found is not None and found > top

        high = min(reach.high(main), _LAST)
        least = smallest(max(1, reach.interval(main)[0]), high, over)
        if least is None:
            continue
        for n in sorted({least, *(-(-least // c) * c for c in steps), *(c + 1 for c in edges if c >= least)}):
            env[main] = n
            if n <= high and w.completed(env, launch.conditions) is not None:
                return env, main
    return None


def with_grid(launch: Launch, env: Mapping[Term, int]) -> dict[Term, int]:
    """Sizes with values of whatever else the grid is made of, 1 where it is a size too."""
    leaves = {x for blocks in launch.grid or () for x in t.leaves(blocks)}
    return {**others_at(launch, leaves, 1, launch.config), **defaults(launch, leaves, launch.config), **env}


def decisive(env: Mapping[Term, int], terms: Iterable[Term]) -> dict[Term, int]:
    """Of an assignment what the values of ``terms`` hang on."""
    kept = search.deciding(terms, dict(env))
    return {x: v for x, v in env.items() if x in kept}


def named(env: dict[Term, int], called: Mapping[Term, str] = _NO_NAMES) -> dict[str, int]:
    """Sizes by name, in the order in which the source has them, launch built-ins left out; ``called`` are other names
    for some. A size that something unseen may have changed on the way has a value before and after: the larger one is
    told."""
    found: dict[str, int] = {}
    for atom in sorted(filter(search.is_shown, env), key=lambda a: a.key):
        name = called.get(atom, atom.data.called(env[atom]))
        found[name] = max(env[atom], found.get(name, env[atom]))
    return found


def grid_env(grid: Triple, block: Triple) -> dict[Term, int]:
    """The atoms of ``gridDim`` and ``blockDim`` with these values."""
    result = {}
    for number, axis in enumerate(_AXES):
        result[GDIM[axis]], result[BDIM[axis]] = grid[number], block[number]
    return result


# --- repairs ------------------------------------------------------------------------------------


def cast_products(fn: Function, whole: Expr, wide: str) -> FixDraft | None:
    """A cast of the first operand of every product in an expression whose value is then widened.

    None where an edit would change something else: inside a macro, behind a narrow conversion, or where
    the first operand can be negative.
    """
    places: list[int] = []
    if not _products_in(whole, places) or not places:
        return None
    if any(fn.file.macro_use(place) is not None for place in (whole.start, *places)):
        return None
    edits = tuple(EditDraft(fn.file, place, place, f"({wide})") for place in sorted(set(places)))
    return FixDraft(True, "cast the first operand of the product", edits)


def _products_in(node: Expr, places: list[int]) -> bool:
    """Collects where to insert casts; False where the value passes something that stays narrow."""
    if isinstance(node, ir.Binary) and isinstance(node.optype, Int) and node.optype.bits == 32:
        if node.op == "*":
            before = len(places)
            if not (_products_in(node.left, places) and _products_in(node.right, places)):
                return False
            if len(places) == before:
                if isinstance(node.left.type, Int) and node.left.type.signed and not isinstance(node.left, ir.Const):
                    return False
                places.append(node.start)
            return True
        if node.op in ("+", "/"):
            return _products_in(node.left, places) and _products_in(node.right, places)
        if node.op == "<<":
            return False
        return not _has_product(node)
    if isinstance(node, ir.Cast) and isinstance(node.type, Int) and node.type.bits == 32:
        return not _has_product(node.operand)
    return not _has_product(node)


def _has_product(node: Expr) -> bool:
    from cudalint.facts.assigned import children

    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, ir.Binary) and item.op in ("*", "<<"):
            return True
        stack.extend(x for x in children(item) if isinstance(x, ir.Expr))
    return False
