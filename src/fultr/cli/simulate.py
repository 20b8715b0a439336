"""The command `fultr simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fultr.cli.console import compiling, print_json, print_table, progress_bar, say, spoken_time, working
from fultr.cli.options import (
    DATA_HELP,
    PATH,
    SEED_HELP,
    given_settings,
    json_option,
    option_name,
    reading_options,
    setting_names,
    settings_options,
    threads_option,
)
from fultr.cli.stopping import resumable
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.errors import FultrError
from fultr.core.settings import leaves
from fultr.federated.combining import Aggregation, StageSettings
from fultr.federated.privacy.settings import Privacy
from fultr.federated.settings import Estimator, LocalTraining, ServerOptimiser
from fultr.rankers.model import ModelSettings
from fultr.rankers.settings import LambdaLinear
from fultr.study.settings import Adversaries, FiniteUsers, PolicySettings, RunSettings, Showing

if TYPE_CHECKING:
    from fultr.data.ranking import Splits
    from fultr.study.course import Simulation

_WANTED = (
    *("propensity", "gamma", "gamma_sd", "clients", "rounds", "queries", "clicks", "displayed"),
    *("client_rate", "server_rate", "server"),
)
_SIMULATED = setting_names(RunSettings, *_WANTED, without=("algorithm", "k", *leaves(LambdaLinear)))
"""The settings that `fultr simulate` has options for: the most wanted first."""

_SECTIONS: dict[str, tuple[str | type, ...]] = {
    "Users and their clicks": (FiniteUsers, ClickModel, Sessions),
    "What users are shown": ("policies", PolicySettings, Showing),
    "Training on a client": (LocalTraining, "pairs", "initial"),
    "Estimated propensities": (Estimator,),
    "Server": (ServerOptimiser, "average_over", Aggregation),
    "Ranker": ("model", ModelSettings),
    "Privacy": (StageSettings, "secure_sums", "dropouts"),
    "Adversaries": ("adversaries", Adversaries),
    "Reading LETOR files": ("fold", "merge", "sentinel"),
}
_LONG = 60  # seconds, from which on it is said beforehand how long a run takes


class _Sectioned(click.Command):
    """A command whose help has headings among its options: there are too many for one list."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what is no setting and what is most wanted first, then each section."""
        places: dict[str, str] = {}
        for title, parts in _SECTIONS.items():
            for part in parts:
                places |= dict.fromkeys([part] if isinstance(part, str) else leaves(part), title)
        places |= dict.fromkeys(_WANTED, "Options")
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *_SECTIONS)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                rows[places.get(param.name or "", "Options")].append(record)
        for title, records in rows.items():
            with formatter.section(title):
                formatter.write_dl(records)


@click.command(cls=_Sectioned)
@click.option("--data", default="synthetic", show_default=True, help=DATA_HELP)
@click.option("--recommended", is_flag=True, help="Begin with the recommended settings instead of the paper's; "
              "with the other options, change them.")  # fmt: skip
@reading_options
@settings_options(RunSettings, _SIMULATED, {"rounds": 200})
@click.option("--seed", default=0, show_default=True, help=SEED_HELP)
@click.option("--out", type=PATH,
              help="Folder for ranker, curve, settings and checkpoint; the same command resumes from it.")  # fmt: skip
@threads_option
@json_option
def simulate(
    data: str,
    recommended: bool,
    fold: int,
    merge: bool,
    sentinel: tuple[str, ...],
    seed: int,
    out: Path | None,
    threads: int | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Train one ranker from the clicks of simulated users.

    Each round, every client of the cohort searches with a logging policy (a ranker trained on few queries), examines
    the results with a probability that falls with the rank, and clicks. It then trains on those clicks and sends its
    update to the server. FedIPS corrects the position bias: it divides a click at a rank by its propensity, the
    probability that the rank is examined.

    \b
    Propensities
      known      the true examination probabilities of each user
      none       no correction: FedAvg
      1,0.5,...  one number per displayed rank, the same for all clients
      personal   estimated by each client from its own clicks
      pooled     one estimate for all clients, from sums over their clicks
      shrunk     a client's own estimate, drawn towards the pooled one; the fewer
                 clicks the client has, the closer
      power-law  (1 / rank) ** gamma, with a gamma estimated for each client
      harvested  one estimate for all clients, from documents that different
                 versions of the logging policy showed at different ranks (their
                 change in clicks is due to the rank alone); needs --policies 2
      trust      how likely clicks on relevant and on other documents are at each
                 rank: for --credit affine

    \b
    Examples
      fultr simulate                            FedIPS with known propensities
      fultr simulate --recommended              the recommended settings
      fultr simulate --recommended --model random-trees --rounds 300
      fultr simulate --propensity none          FedAvg
      fultr simulate --propensity shrunk        propensities from the clicks
      fultr simulate --propensity harvested --policies 2
      fultr simulate --server adam --server-rate 0.1 --gamma 2
      fultr simulate --refresh 10 --loss softmax --server adam --server-rate 0.1
      fultr simulate --click-model cascade --continues 0.5
      fultr simulate --click-model trust --credit affine --propensity trust
      fultr simulate --adversaries 0.2 --strength 100 --aggregation clipped
      fultr simulate --privacy correlated --epsilon 1 --population 1000000
      fultr simulate --secure-sums --dropouts 0.05
      fultr simulate --data ~/data/MQ2007 --users 5000 --out out/mine
    """
    given = given_settings(settings)
    start = RunSettings()
    if recommended:
        start = RunSettings.recommended(given["rounds"], given.get("model", "linear"))
    chosen = start.but(given)
    for name in given.keys() - chosen.relevant().keys():
        needed = (
            (FiniteUsers, "--users"),
            (Adversaries, "--adversaries"),
            (Estimator, "an estimated --propensity"),
            (Privacy, "--privacy"),
        )
        need = next(words for record, words in needed if name in leaves(record))
        raise FultrError(f"{option_name(name)} makes no difference to this run: it needs {need}")
    run = _train(chosen, data, dict(fold=fold, merge=merge, sentinel=sentinel or "auto"), seed, out, threads)
    if out is not None:
        _write(run, out)
    _print(run, chosen, out, as_json=as_json)


@compiling(20)
def _train(
    settings: RunSettings, data: str, reading: dict[str, Any], seed: int, out: Path | None, threads: int | None
) -> Simulation:
    from fultr.core.files import make_folder
    from fultr.data.load import load
    from fultr.study.run import train

    with working("Loading the data"):
        splits = load(data, **reading, threads=threads)
    checkpoint = None if out is None else out / "checkpoint.npz"
    if out is not None:
        make_folder(out)
    _announce(settings, splits, threads)

    def kept() -> str:
        if checkpoint is None or not checkpoint.exists():
            return ""
        return f"the same command resumes from {checkpoint}"

    with resumable(kept), progress_bar(settings.rounds, "Training") as done:
        return train(settings, splits, seed=seed, checkpoint=checkpoint, threads=threads, on_round=done)


def _announce(settings: RunSettings, splits: Splits, threads: int | None) -> None:
    """Say how long a long run takes, before it starts, and who the users are where the data have their own."""
    import numpy as np

    from fultr.core.threads import default_threads
    from fultr.study.run import cost

    used = threads or default_threads()
    seconds = cost(settings, splits, ("valid", "test")) / used
    if seconds >= _LONG:
        threaded = f"{used} thread{'' if used == 1 else 's'}"
        say(f"{settings.rounds:,} rounds: about {spoken_time(seconds)} with {threaded}, less what is finished already")
    if settings.population is not None and splits.train.users is not None:
        own, asked = np.unique(splits.train.users).size, settings.population.users
        again = ", some or all of them more than once" if asked > own else ""
        say(f"The {asked:,} users are drawn from the {own:,} of the data{again}; each has its own queries")


def _write(run: Simulation, out: Path) -> None:
    import csv
    import io
    import json

    from fultr.core.files import written_whole
    from fultr.study.origins import versions

    run.ranker.save(out / "ranker.json")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    shown = {"displayed": run.online.displayed, "first policy": run.online.policy}
    writer.writerow(["round", *(f"ndcg@5 {name}" for name in (*run.curve.ndcg, *shown))])
    for i, round_ in enumerate(run.curve.rounds):
        online = [repr(float(values[i - 1])) if i else "" for values in shown.values()]
        writer.writerow([round_, *(repr(float(values[i])) for values in run.curve.ndcg.values()), *online])
    with written_whole(out / "curve.csv") as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")
    with written_whole(out / "settings.json") as temporary:
        content = {**run.settings, "versions": versions()}
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _print(run: Simulation, settings: RunSettings, out: Path | None, *, as_json: bool) -> None:
    import numpy as np

    from fultr.federated.privacy.accountant import Guarantee

    curve = {"round": run.curve.rounds.tolist(), **{name: v.tolist() for name, v in run.curve.ndcg.items()}}
    last = {name: values[-1].tolist() for name, values in vars(run.weighing).items() if name != "rounds"}
    online = {"round": run.online.rounds, "displayed": run.online.displayed, "first policy": run.online.policy}
    if as_json:
        where = None if out is None else str(out)
        told = {name: values.tolist() for name, values in online.items()}
        # A rank that nobody clicked in the last round has no weight.
        plain = {name: [None if np.isnan(value) else value for value in values] for name, values in last.items()}
        print_json({"settings": run.settings, "ndcg@5": curve, "online": told, "weighing": plain, "out": where})
        return
    shown = np.unique(np.linspace(0, len(curve["round"]) - 1, 11).astype(int))
    rows = [[f"{curve['round'][i]}", f"{curve['valid'][i]:.4f}", f"{curve['test'][i]:.4f}"] for i in shown]
    head = ["round", "NDCG@5 valid", "NDCG@5 test"]
    if settings.showing.refresh is not None or settings.showing.exploration != "none":
        head += ["displayed", "first policy"]
        for i, row in zip(shown, rows, strict=True):
            row += [f"{online[name][i - 1]:.4f}" if i else "" for name in head[3:]]
    print_table([head, *rows])
    if isinstance(settings.fedips.propensity, Estimator):
        weighed = zip(last["used"], last["true"], last["mass"], strict=True)
        ranks = [[f"{k}", f"{u:.3f}", f"{t:.3f}", f"{m:.2f}"] for k, (u, t, m) in enumerate(weighed, 1)]
        head = ["rank", "estimated examination", "true examination", "weight, of the correct one"]
        print_table([head, *ranks], title="In the last round")
    if run.settings["privacy"] is not None:
        print(f"Privacy: {Guarantee(**run.settings['privacy'])}")
    if out is not None:
        say(f"Ranker: {out / 'ranker.json'}  (curve.csv, settings.json and checkpoint.npz are beside it)")
