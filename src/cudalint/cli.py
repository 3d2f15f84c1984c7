"""The command line."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn

from cudalint import __version__
from cudalint.errors import UsageError, say
from cudalint.report import FORMATS, Report, render, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cudalint import fix
    from cudalint.engine import Options, Result
    from cudalint.fix import Repaired

STAGES = ("source", "ir", "facts", "uniformity")


class _Help(argparse.HelpFormatter):
    """As wide as the terminal. argparse asks shutil, which is not quickly imported, for a parser's every option."""

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        try:
            width = int(columns) if columns.isdecimal() else os.get_terminal_size().columns
        except OSError:
            width = 0
        super().__init__(prog, width=(width or 80) - 2)


class _Parser(argparse.ArgumentParser):
    """A parser whose options are made by ``fill`` when it is asked: one command of many is."""

    def __init__(self, fill: Callable[[_Parser], None] | None = None, **settings: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **settings)
        self._fill = fill

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _codes(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(",", " ").split())


def _parser() -> _Parser:
    parser = _Parser(prog="cudalint", description="A static linter for CUDA.")
    parser.add_argument("--version", action="version", version=f"cudalint {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    commands.add_parser(
        "check", help="report faults in CUDA sources",
        description="Check files and folders. Exit code 0: clean, 1: findings (notes do not count), 2: misuse,"
        " configuration or internal error.", fill=_check_options,
    )  # fmt: skip
    commands.add_parser(
        "confirm", help="prove findings: run their kernels in the simulator or on a GPU",
        description="Check, then run an experiment for each finding. Exit code as check.", fill=_confirm_options,
    )  # fmt: skip
    commands.add_parser(
        "contract", help="print what kernels ask of their launches",
        description="Print each kernel's launch contract, and whether the launches one can see keep to it. Exit code 0:"
        " they do, or it cannot be told; 1: one does not; 2: misuse or configuration error.", fill=_contract_options,
    )  # fmt: skip
    commands.add_parser("rule", help="explain a rule", description="Print a rule's page.", fill=_rule_options)
    commands.add_parser("rules", help="list the rules", description="List the rules.")
    commands.add_parser(
        "lsp", help="serve an editor",
        description="Speak the Language Server Protocol on stdin and stdout: an editor starts this.", fill=_lsp_options,
    )  # fmt: skip
    commands.add_parser(
        "debug", help="show what an analysis stage made of a file",
        description="Print what one stage of the analysis made of a file. For people who work on cudalint.",
        fill=_debug_options,
    )  # fmt: skip
    return parser


def _check_options(check: _Parser) -> None:
    check.add_argument("paths", nargs="*", metavar="PATH", default=[], help="files and folders (default: .)")
    rules = check.add_argument_group("rules", "RULES: codes, names, prefixes (CL1), groups (barrier), ALL")
    rules.add_argument("--select", type=_codes, action="extend", metavar="RULES", help="only these")
    rules.add_argument("--extend-select", type=_codes, action="extend", metavar="RULES", help="these too", default=[])
    rules.add_argument("--ignore", type=_codes, action="extend", metavar="RULES", help="not these", default=[])
    rules.add_argument("--baseline", type=_name, metavar="FILE", help="report only what is not in this baseline")
    rules.add_argument(
        "--write-baseline", type=_name, metavar="FILE", help="accept today's findings: write them to FILE"
    )
    rules.add_argument(
        "--changed-since", metavar="REV",
        help="report only what concerns a function, macro or launch that differs from the git revision REV",
    )  # fmt: skip
    rules.add_argument(
        "--add-ignore", nargs="?", const="", metavar="REASON",
        help="suppress today's findings by comments in the sources; with a reason: --add-ignore=REASON",
    )  # fmt: skip
    repairs = check.add_argument_group("repairs")
    repairs.add_argument(
        "--fix", action="store_true", help="repair what can be repaired without changing what is right"
    )
    repairs.add_argument(
        "--unsafe-fixes", action="store_true", help="with --fix or --diff: the repairs to look over too"
    )
    repairs.add_argument(
        "--diff", action="store_true", help="print the repairs as a diff and change nothing; exit 1 if any"
    )
    output = check.add_argument_group("output")
    output.add_argument("--output-format", choices=FORMATS, default="full", help="default: full")
    output.add_argument("--output-file", type=_name, metavar="FILE", help="write the report there instead of to stdout")
    output.add_argument("--statistics", action="store_true", help="count the findings by rule, after the report")
    output.add_argument("--exit-zero", action="store_true", help="exit 0 even if there are findings")
    files = check.add_argument_group("files and configuration")
    files.add_argument("--stdin-filename", metavar="NAME", help="check the text on stdin as the file NAME")
    files.add_argument(
        "--config", type=_name, metavar="FILE", help="use this configuration instead of the ones in the tree"
    )
    files.add_argument("--isolated", action="store_true", help="use no configuration file")
    files.add_argument("--force-exclude", action="store_true", help="leave out files named here that a walk leaves out")
    files.add_argument(
        "--compile-commands", type=_name, metavar="FILE", help="take include paths and macros from this database"
    )
    files.add_argument("--jobs", type=_jobs, metavar="N", help="processes (default: one a core for many files)")
    files.add_argument("--no-cache", action="store_true", help=argparse.SUPPRESS)

    check.add_argument("--confirm", action="store_true", help="run an experiment for each finding (see confirm)")


def _confirm_options(confirm: _Parser) -> None:
    confirm.add_argument("paths", nargs="*", metavar="PATH", default=[], help="files and folders (default: .)")
    confirm.add_argument("--select", type=_codes, action="extend", metavar="RULES", help="only these")
    confirm.add_argument("--extend-select", type=_codes, action="extend", metavar="RULES", help="these too", default=[])
    confirm.add_argument("--ignore", type=_codes, action="extend", metavar="RULES", help="not these", default=[])
    confirm.add_argument("--as", dest="code", metavar="CODE", help="run this rule's experiment, finding or not")
    confirm.add_argument("--kernel", metavar="K", help="with --as: on this kernel only")
    confirm.add_argument("--sizes", type=_numbers, metavar="N,...", default=(), help="the sizes to run, instead")
    confirm.add_argument("--block", type=_block, metavar="T", help="threads of a block, instead")
    confirm.add_argument("--timeout", type=_seconds, metavar="SECONDS", default=20, help="for one experiment (20)")
    confirm.add_argument("--only-confirmed", action="store_true", help="report only what was confirmed")
    confirm.add_argument(
        "--backend", choices=("auto", "sim", "cupy"), default="auto",
        help="sim: simulate, nothing is executed; cupy: compile the kernels and run them on the GPU; auto: cupy where"
        " there is a GPU that CuPy can use (default)",
    )  # fmt: skip
    confirm.add_argument("--html", metavar="FILE", help="write a page there: the verdicts, and pictures of the runs")
    confirm.add_argument(
        "--repro", type=_name, metavar="DIR", help="write a script there for each experiment, for CuPy and NumPy"
    )
    confirm.add_argument("--sanitizer", action="store_true", help="ask compute-sanitizer about what the GPU confirmed")
    confirm.add_argument("--output-format", choices=("full", "json"), default="full", help="default: full")
    confirm.add_argument(
        "--output-file", type=_name, metavar="FILE", help="write the report there instead of to stdout"
    )
    confirm.add_argument(
        "--config", type=_name, metavar="FILE", help="use this configuration instead of the ones in the tree"
    )
    confirm.add_argument("--isolated", action="store_true", help="use no configuration file")
    confirm.add_argument("--exit-zero", action="store_true", help="exit 0 even if there are findings")


def _contract_options(contract: _Parser) -> None:
    contract.add_argument("paths", nargs="*", metavar="PATH", default=[], help="files and folders (default: .)")
    contract.add_argument("--output-format", choices=("full", "json"), default="full", help="default: full")
    contract.add_argument(
        "--output-file", type=_name, metavar="FILE", help="write the report there instead of to stdout"
    )
    contract.add_argument(
        "--config", type=_name, metavar="FILE", help="use this configuration instead of the ones in the tree"
    )
    contract.add_argument("--isolated", action="store_true", help="use no configuration file")
    contract.add_argument("--exit-zero", action="store_true", help="exit 0 even if a launch breaks a contract")


def _rule_options(rule: _Parser) -> None:
    rule.add_argument("rule", metavar="CODE|NAME")


def _lsp_options(lsp: _Parser) -> None:
    lsp.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)  # what some clients always say


def _debug_options(debug: _Parser) -> None:
    debug.add_argument("--stage", choices=STAGES, required=True)
    debug.add_argument("file", metavar="FILE")


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the name is empty: is a variable not set?")
    return text


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


def _jobs(text: str) -> int:
    if not _is_number(text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is no number of processes")
    return int(text)


def _block(text: str) -> int:
    if not _is_number(text) or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"'{text}' is no block: 1 to 1024 threads")
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text if text.isascii() else "")
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no time: seconds above 0")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if "," in text else text.split()
    if not words or not all(map(_is_number, words)):
        raise argparse.ArgumentTypeError(f"'{text[:40]}' are no sizes")
    return tuple(int(word) for word in words)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with paths wherever they stand: argparse alone takes them in one run only."""
    parser = _parser()
    # argparse would take the word after --add-ignore, a path, for its reason
    arguments = [f"{x}=" if x == "--add-ignore" else x for x in (sys.argv[1:] if arguments is None else arguments)]
    options: argparse.Namespace
    options, rest = parser.parse_known_args(arguments)
    paths = getattr(options, "paths", None)
    if rest and (paths is None or any(word.startswith("-") for word in rest)):
        parser.parse_args(arguments)  # says which and ends
    if paths is not None:
        options.paths = [*paths, *rest]
        if "" in options.paths or getattr(options, "stdin_filename", None) == "":
            raise UsageError("a path is empty: is a variable not set?")
    return options


@contextmanager
def _reader() -> Iterator[None]:
    """Whoever reads stdout may go (`| head`): no matter, the exit code still tells. A full disk is told."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as fault:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(f"stdout cannot be written: {fault.strerror or fault}") from fault


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        if sys.stderr is None:
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # as long as the process runs
        if sys.stdout is None:
            raise UsageError("stdout is closed: there is nowhere to report to")
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # both are text files
        options = _arguments(arguments)
        try:
            os.getcwd()
        except FileNotFoundError:
            raise UsageError("the working directory is gone: change to one that is there") from None
        commands = {
            "check": _check,
            "confirm": _confirm,
            "contract": _contract,
            "rule": _rule,
            "rules": _rules,
            "debug": _debug,
            "lsp": _lsp,
        }
        code = commands[options.command](options)
        with _reader():
            sys.stdout.flush()
        gc.freeze()  # the process ends: a last search for cycles among all that was loaded would take 10 ms
        return code
    except UsageError as error:
        say(error)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as fault:
        if os.environ.get("CUDALINT_DEBUG"):
            raise
        what = f"{type(fault).__name__}: {fault}".partition("\n")[0]
        print(f"cudalint: internal error: {what} (CUDALINT_DEBUG=1 shows where; please report it)", file=sys.stderr)
        return 2


def _check(options: argparse.Namespace) -> int:
    from cudalint.engine import Options, check
    from cudalint.select import Layer

    stdin = None
    if options.stdin_filename is not None:
        if options.paths not in ([], ["-"]):
            raise UsageError("--stdin-filename and PATH exclude each other")
        if os.path.isdir(options.stdin_filename):
            raise UsageError(f"--stdin-filename: {options.stdin_filename} is a folder")
        if sys.stdin is None:
            raise UsageError("stdin is closed: there is no text to check")
        stdin = (options.stdin_filename, sys.stdin.buffer.read())
    elif "-" in options.paths:
        raise UsageError("to check stdin, say what file it is: --stdin-filename NAME")
    if options.config and options.isolated:
        raise UsageError("--config and --isolated exclude each other")
    if options.unsafe_fixes and not (options.fix or options.diff):
        raise UsageError("--unsafe-fixes goes with --fix or --diff")
    if options.write_baseline and (options.fix or options.diff):
        raise UsageError("--write-baseline and --fix or --diff exclude each other: repair first")
    if options.write_baseline and options.changed_since is not None:
        raise UsageError("--write-baseline and --changed-since exclude each other: a baseline has all findings")
    if options.add_ignore is not None:
        for name in ("fix", "diff", "write_baseline", "confirm", "stdin_filename"):
            if getattr(options, name):
                raise UsageError(f"--add-ignore and --{name.replace('_', '-')} exclude each other")
    select = None if options.select is None else tuple(options.select)
    line = Layer("the command line", select, tuple(options.extend_select), tuple(options.ignore))
    run = Options(
        line, options.config, options.isolated, options.force_exclude, options.jobs,
        None if options.write_baseline else options.baseline, options.compile_commands, stdin,
        write_baseline=options.write_baseline, changed_since=options.changed_since,
    )  # fmt: skip
    result = check(options.paths or ["."], run)
    for problem in result.problems:
        say(problem)
    if not result.files and not result.unread and not result.problems:
        where = " ".join(options.paths) or "."
        left_out = f" ({result.excluded} left out by 'exclude')" if result.excluded else ""
        print(f"cudalint: no CUDA file to check in {where}{left_out}", file=sys.stderr)
    if options.write_baseline:
        from cudalint import baseline

        if result.problems:
            print(f"cudalint: {options.write_baseline} is not written: not everything was checked", file=sys.stderr)
            return 2
        baseline.write(options.write_baseline, result.findings, result.marks)
        print(f"{len(result.findings)} findings written to {options.write_baseline}", file=sys.stderr)
        return 0
    if options.add_ignore is not None:
        return _add_ignore(options, run, result)
    if options.diff:
        return _diff(options, result, _repaired(options, run, result)[0])
    report_to = sys.stdout
    if options.fix:
        repaired, again = _repaired(options, run, result)
        if stdin is not None:  # stdout is for the text
            report_to = sys.stderr
            with _reader():
                sys.stdout.buffer.write(next(iter(repaired.texts.values()), stdin[1]))
        else:
            from cudalint import fix

            failed = fix.write(repaired.texts)
            if failed:
                repaired = fix.unwritten(repaired, result, again, failed)
            for problem in failed.values():
                say(problem)
                repaired.result.problems.append(problem)
        result = repaired.result
        _tell(repaired, "repaired")
    if options.confirm:
        try:
            from cudalint.confirm.command import proved
            from cudalint.confirm.runner import Limits
        except ImportError as fault:
            raise UsageError(f"--confirm needs NumPy ({fault}): pip install numpy") from fault
        result = proved(result, Limits())[0]
    with redirect_stdout(report_to):
        _print(options, result)
    if result.problems:
        return 2
    return int(not options.exit_zero and any(f.level != "note" for f in result.findings))


def _add_ignore(options: argparse.Namespace, run: Options, result: Result) -> int:
    """Writes suppressions into the sources and says which: of all that was named, or of nothing."""
    from cudalint import add_ignore, fix
    from cudalint.engine import check

    if result.problems:
        print("cudalint: no file was changed (a reason follows a '=': --add-ignore=REASON)", file=sys.stderr)
        return 2

    def again(texts: Mapping[str, bytes]) -> Result:
        return check(options.paths or ["."], run._replace(texts=texts))

    report = _report(result)
    ignored = add_ignore.ignore(
        result, again, lambda span: report.place(span, column=False), options.add_ignore, fix.write
    )
    write_out(options, [visible(line) + "\n" for line in ignored.written])
    for line in (*ignored.problems, *ignored.left, ignored.summary):
        print(f"cudalint: {line}", file=sys.stderr)
    return 2 if ignored.problems else 0


def _repaired(options: argparse.Namespace, run: Options, result: Result) -> tuple[Repaired, fix.Check]:
    """The repairs, and how to check once more with other texts."""
    from cudalint import fix
    from cudalint.engine import check

    def again(texts: Mapping[str, bytes], paths: Iterable[str] | None) -> Result:
        only = None if paths is None else frozenset(paths)
        return check(options.paths or ["."], run._replace(texts=texts, only=only))

    overlay = {os.path.abspath(run.stdin[0]): run.stdin[1]} if run.stdin else {}
    return fix.repair(result, again, overlay, unsafe=options.unsafe_fixes), again


def _tell(repaired: Repaired, what: str) -> None:
    from cudalint.findings import plural
    from cudalint.fix import fixable

    left_over = repaired.result.findings
    more = fixable(left_over, unsafe=True) - fixable(left_over, unsafe=False)
    left = f"; --unsafe-fixes: {more} more" if more else ""
    files = plural(len(repaired.texts), "file")
    print(f"cudalint: {plural(repaired.fixed, 'finding')} {what} in {files}{left}", file=sys.stderr)


def _diff(options: argparse.Namespace, result: Result, repaired: Repaired) -> int:
    """Prints what --fix would change: bytes, for names and text are to be what they are on disk."""
    from cudalint import fix

    patch = "".join(fix.diff(repaired, _report(result).relative))
    if options.output_file is None:
        with _reader():
            sys.stdout.flush()
            sys.stdout.buffer.write(patch.encode("utf-8", "surrogateescape"))
    else:
        from cudalint.baseline import write_text

        write_text(options.output_file, patch, "surrogateescape")
    _tell(repaired, "would be repaired")
    if result.problems:
        return 2
    return int(not options.exit_zero and bool(repaired.texts))


def _confirm(options: argparse.Namespace) -> int:
    try:
        from cudalint.confirm.command import run
    except ImportError as fault:
        raise UsageError(f"confirm needs NumPy ({fault}): pip install numpy") from fault
    return run(options)


def _contract(options: argparse.Namespace) -> int:
    from cudalint.contracts.command import run

    return run(options)


def _lsp(_: argparse.Namespace) -> int:
    try:
        from cudalint.lsp.handlers import run
    except ImportError as fault:
        raise UsageError(f"lsp needs pygls ({fault}): pip install 'cudalint[lsp]'") from fault
    return run()


def _report(result: Result, *, colour: bool = False) -> Report:
    return Report(result.findings, result.problems, result.source, result.files, os.getcwd(), colour, result.unread)


def _print(options: argparse.Namespace, result: Result) -> None:
    colour = _colour() if options.output_file is None else False
    write_out(options, render(options.output_format, _report(result, colour=colour)))
    if options.statistics:
        from cudalint.report import statistics

        machine = options.output_file is None and options.output_format not in ("full", "concise")
        (sys.stderr if machine else sys.stdout).writelines(
            statistics.render(
                result.findings, files=result.files, lines=result.lines, seconds=result.seconds,
                held_back=result.held_back,
            )
        )  # fmt: skip


def write_out(options: argparse.Namespace, pieces: Iterable[str]) -> None:
    """Print a report, or write it to ``--output-file``."""
    if options.output_file is None:
        with _reader():
            sys.stdout.writelines(pieces)
    else:
        from cudalint.baseline import write_text

        write_text(options.output_file, "".join(pieces))


def _colour() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _rule(options: argparse.Namespace) -> int:
    from cudalint.select import one_rule

    with _reader():
        sys.stdout.write(one_rule(options.rule).text)
    return 0


def _rules(_: argparse.Namespace) -> int:
    from cudalint.rules.pages import pages

    width = max((len(page.name) for page in pages().values()), default=0)
    lines = [f"{'Code':<5}  {'Name':<{width}}  {'Group':<8}  {'Level':<7}  What it finds\n"]
    for page in pages().values():
        opt_in = "" if page.default else "  (opt-in)"
        lines.append(f"{page.code}  {page.name:<{width}}  {page.group:<8}  {page.level:<7}  {page.summary}{opt_in}\n")
    with _reader():
        sys.stdout.writelines(lines)
    return 0


def _debug(options: argparse.Namespace) -> int:
    from cudalint.debug import show

    with _reader():
        sys.stdout.writelines(show(options.stage, options.file))
    return 0
