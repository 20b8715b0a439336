"""Experiments in other sizes: nothing is lost but size."""

from __future__ import annotations

from fultr.study.experiment_files import packaged, parse_experiment
from fultr.study.reproduce import expected
from fultr.study.sizing import QUICK_DATA, QUICK_REPEATS, QUICK_ROUNDS, quick, resized
from fultr.study.store import Source


def test_all_of_it_made_quick_is_expected_to_take_less_than_eight_minutes_on_two_cores():
    source, shared = Source(QUICK_DATA), set()
    sized = [resized(quick(one), rounds=QUICK_ROUNDS, repeats=QUICK_REPEATS) for one in packaged()]
    seconds = sum(expected(one, source, shared=shared)[1] for one in sized)
    assert seconds / 2 < 8 * 60, f"{seconds / 2:.0f} s"


def test_quick_experiments_have_all_lines_and_claims_and_their_settings():
    for one in packaged():
        small = resized(quick(one), rounds=QUICK_ROUNDS, repeats=QUICK_REPEATS)
        assert [line.name for line in small.lines] == [line.name for line in one.lines]
        assert (small.claims, small.panels) == (one.claims, one.panels)
        for line, whole in zip(small.lines, one.lines, strict=True):
            differ = {
                name
                for name, value in line.settings.relevant().items()
                if value != whole.settings.relevant()[name] and name not in dict(line.grid)
            }
            assert differ <= {
                "rounds", "evaluate_every", "decay_rounds", "linear_rounds", "tree_rounds", "estimate_decay", "clients",
            }  # fmt: skip
            assert all(set(values) <= set(dict(whole.grid)[name]) for name, values in line.thinned)


def test_small_cohorts_stay_and_settings_without_a_number_of_rounds_too():
    tuning = "[tuning]\nclient_rate = [0.1, 1]"
    text = f"[settings]\nclients = 8\nusers = 8\n[[line]]\ndecay_rounds = 30\ntuned_at.decay_rounds = 0\n{tuning}"
    small = resized(quick(parse_experiment(text, "mine")), rounds=20)
    assert small.lines[0].settings.clients == 8
    assert dict(small.lines[0].tuned_at) == {"decay_rounds": None}


def test_lines_of_other_lengths_keep_their_ratio_to_most():
    [trees] = [one for one in packaged() if one.name == "trees"]
    small = {line.name: line.settings for line in resized(trees, rounds=30).lines}
    grown = next(settings for name, settings in small.items() if name.startswith("random trees"))
    model = grown.fedips.model
    assert (grown.rounds, model.linear_rounds, model.tree_rounds) == (30, 10, 20)
