"""Tests of the Python module longhand: PYTHONPATH=build/release/python /usr/bin/python3 tests/python/module_test.py"""

import gc
import inspect
import os
import re
import sys
import unittest

import numpy as np

import longhand

try:
    import torch
except ImportError:
    torch = None

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "attention/python"))
import check_functions as functions

GOLDEN = os.path.join(ROOT, "tests/data/golden")
GATED = {"norm": False, "gate": False}
BRIEF = ["reference", "causality", "padding", "batch"]


def arrays(*shape, dtype="float64", count=3, seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(dtype) for _ in range(count)]


class AttentionTest(unittest.TestCase):
    def test_results_are_those_of_the_definition(self):
        d = longhand.definitions
        for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
            for causal in (False, True):
                q, k, v = arrays(2, 9, 2, 4, dtype=dtype)
                lengths = np.array([9, 5], np.int32)
                f = longhand.attention("softmax", heads=2, head_dim=4, causal=causal, dtype=dtype)
                out = f(q, k, v, lengths=lengths)
                visible = d.visible(9, 9, causal=causal, lengths=lengths)
                self.assertEqual(out.dtype, dtype)
                self.assertLess(abs(out - d.apply(d.softmax(q, k, visible), v)).max(), tolerance)
                self.assertTrue((out[1, 5:] == 0).all())
                np.testing.assert_array_equal(out, f(q, k, v, lengths=lengths.astype(np.int64)))

    def test_every_definition_is_there(self):
        with open(os.path.join(ROOT, "attention/definitions/definitions.h"), encoding="utf-8") as header:
            names = re.findall(r"^(?:Variable|Tensor) (\w+)\(", header.read(), re.M)
        self.assertGreater(len(names), 30)
        for name in names:
            self.assertTrue(hasattr(longhand.definitions, name), name)
        visible = longhand.definitions.visible(3, 3, causal=True)
        np.testing.assert_allclose(longhand.definitions.mean(visible)[0, 0, 2], np.full(3, 1 / 3))

    def test_every_variant_can_be_called(self):
        q, k, v = arrays(1, 12, 2, 8, dtype="float32")
        x = arrays(1, 12, 16, dtype="float32", count=1)[0]
        for name in longhand.variants():
            with self.subTest(name):
                try:
                    f = longhand.attention(name, heads=2, head_dim=8, max_length=12)
                except longhand.Error as error:
                    self.assertIn("causal", str(error))
                    f = longhand.attention(name, heads=2, head_dim=8, max_length=12, causal=True)
                self.assertEqual(f(q, k, v, x).shape, v.shape)

    def test_gradients_agree_with_differences(self):
        f = longhand.attention("gla", heads=2, head_dim=3, causal=True, dtype="float64", seed=3)
        q, k, v = arrays(2, 5, 2, 3)
        x, = arrays(2, 5, 6, count=1, seed=1)
        dy, = arrays(2, 5, 2, 3, count=1, seed=2)
        out, vjp = f.vjp(q, k, v, x)
        np.testing.assert_array_equal(out, f(q, k, v, x))
        gradients = vjp(dy)
        points = {"q": q, "k": k, "v": v, "x": x, **f.parameters}
        self.assertEqual(sorted(gradients), sorted(points))
        for name, point in points.items():
            at = (0,) * point.ndim
            step, before = 1e-6, point[at]
            point[at] = before + step
            above = (f(q, k, v, x) * dy).sum()
            point[at] = before - step
            slope = (above - (f(q, k, v, x) * dy).sum()) / (2 * step)
            point[at] = before
            self.assertAlmostEqual(gradients[name][at], slope, delta=1e-7, msg=name)
        with self.assertRaisesRegex(longhand.Error, "call vjp"):
            vjp(dy)

    def test_names_of_arguments_are_theirs(self):
        f = longhand.attention("lowrank", heads=2, head_dim=4, max_length=8, rank=3)
        v, = arrays(1, 8, 2, 4, count=1)
        gradients = f.vjp(None, None, v.astype("float32"))[1](v.astype("float32"))
        self.assertEqual(gradients["v"].shape, v.shape)
        self.assertEqual(gradients["parameters.v"].shape, f.parameters["v"].shape)
        f = longhand.attention("performer", heads=2, head_dim=4, features=8, options={"heads": "per_head"})
        self.assertEqual(f.options["heads"], "per_head")
        self.assertEqual(f.options["features"], 8)
        with self.assertRaisesRegex(longhand.Error, "lengths: expected .*4294967299"):
            f(v, v, v, lengths=[2**32 + 3])

    def test_arrays_are_not_copied(self):
        a, = arrays(2, 5, 2, 4, count=1)
        for view in (a, a.transpose(0, 2, 1, 3), a[:, ::2], a[:, :, 1:], np.broadcast_to(a[:1], a.shape)):
            self.assertEqual(longhand._address(view), view.ctypes.data)
        self.assertNotEqual(longhand._address(a[:, ::-1]), a[:, ::-1].ctypes.data)
        f = longhand.attention("linformer", heads=2, head_dim=4, max_length=8, dtype="float64")
        name = sorted(f.parameters)[0]
        self.assertTrue(np.shares_memory(f.parameters[name], f.parameters[name]))
        out = f(a, a, a)
        f.parameters[name][...] = 0
        self.assertFalse(np.array_equal(f(a, a, a), out))
        q = a.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)
        np.testing.assert_array_equal(f(q, a[:, ::-1][:, ::-1], a), f(a, a, a))

    def test_memory_lives_as_long_as_the_arrays(self):
        f = longhand.attention("softmax", heads=2, head_dim=4, dtype="float64")
        out, vjp = f.vjp(*arrays(2, 9, 2, 4))
        sums, before = f(*arrays(2, 9, 2, 4)), out.copy()
        del f
        gc.collect()
        np.testing.assert_array_equal(out, before)
        np.testing.assert_array_equal(sums, before)
        self.assertTrue(np.isfinite(vjp(before)["q"]).all())

    def test_inputs_are_not_written_to(self):
        for name in ("softmax", "gla", "deltanet", "performer"):
            f = longhand.attention(name, heads=2, head_dim=4, causal=True, dtype="float64")
            given = arrays(2, 9, 2, 4) + arrays(2, 9, 8, count=1)
            before = [a.copy() for a in given]
            out, vjp = f.vjp(*given)
            dy = np.ones_like(out)
            vjp(dy)
            for a, b in zip(given + [dy], before + [np.ones_like(out)]):
                np.testing.assert_array_equal(a, b)

    def test_parameters_are_set_by_name(self):
        f = longhand.attention("gla", heads=2, head_dim=4, causal=True)
        f.parameters = {"decay.bias": np.full(8, 2.0)}
        self.assertTrue((f.parameters["decay.bias"] == 2).all())
        with self.assertRaisesRegex(longhand.Error, "decay.bis"):
            f.parameters = {"decay.bis": np.zeros(8)}
        with self.assertRaisesRegex(longhand.Error, "decay.bias"):
            f.parameters = {"decay.bias": np.zeros(7)}

    def test_errors_are_those_of_the_library(self):
        f = longhand.attention("softmax", heads=2, head_dim=4)
        q, k, v = arrays(2, 9, 2, 4, dtype="float32")
        for call, message in [
            (lambda: longhand.attention("softmx", heads=1, head_dim=4), "did you mean \"softmax\""),
            (lambda: longhand.attention("performer", heads=1, head_dim=4, feature=3), "features"),
            (lambda: longhand.attention("performer", heads=1, head_dim=4, features="x"), "features"),
            (lambda: longhand.attention("linformer", heads=1, head_dim=4), "max_length"),
            (lambda: longhand.attention("softmax", heads=1, head_dim=4, dtype="float16"), "float32"),
            (lambda: f(q.astype(np.float64), k, v), "one float dtype"),
            (lambda: f(*[a.astype(np.float64) for a in (q, k, v)]), "float32, the dtype that it was made with"),
            (lambda: f(q.astype(np.float16), k, v), "float16"),
            (lambda: f(q.astype(np.int32), k, v), "int32"),
            (lambda: f(q[:, :, :1], k, v), "H = 2"),
            (lambda: f(q[0], k, v), "got q"),
            (lambda: f(q, k, v, lengths=[9, 10]), "got 10"),
            (lambda: f(q, k, v, lengths=[9.0, 1.0]), "lengths i32"),
            (lambda: longhand.attention("gla", heads=2, head_dim=4, causal=True)(q, k, v), "reads the tokens x"),
        ]:
            with self.assertRaisesRegex(longhand.Error, message):
                call()

    def test_options_and_text(self):
        f = longhand.attention("performer", heads=2, head_dim=np.int64(4), features=np.int64(32), eps=np.float32(0.5))
        self.assertEqual(f.options["features"], 32)
        self.assertEqual(f.options["eps"], 0.5)
        self.assertIn("performer: 2 heads of 4, float32", repr(f))


class CheckTest(unittest.TestCase):
    def assert_fails(self, report, *names):
        self.assertFalse(report.passed)
        for name in names:
            self.assertIn(name, report.failed, str(report))

    def test_correct_functions_pass(self):
        for function, name, options in [
            (functions.softmax, "softmax", {}),
            (functions.gla, "gla", GATED),
            (functions.performer, "performer", {"eps": 1e-4, "features": 20, "checks": ["reference", "padding", "batch", "values"]}),
        ]:
            report = longhand.check(function, name, **options)
            self.assertTrue(report.passed, str(report))
            self.assertIn("reference", [each.name for each in report])

    def test_a_limit_of_the_variant_is_checked(self):
        report = longhand.check(functions.gla, "gla", **GATED)
        self.assertIn("equal-gates", [each.name for each in report])

        def without_power(q, k, v, x, parameters, decay_rank, temperature):
            return functions.gla(q, k, v, x, parameters, decay_rank, 1)

        self.assert_fails(longhand.check(without_power, "gla", **GATED), "reference", "equal-gates")

    def test_planted_mistakes_fail_by_name(self):
        self.assert_fails(longhand.check(functions.softmax_off_by_one, "softmax"), "reference (causal)",
                          "causality (causal)", "prefixes (causal)")
        self.assertEqual(longhand.check(functions.softmax_minus_10000, "softmax").failed,
                         ["nothing-to-attend", "nothing-to-attend (causal)"])
        self.assert_fails(longhand.check(functions.softmax_nan, "softmax", causal=False), "nothing-to-attend", "padding")
        self.assert_fails(longhand.check(functions.performer_of_batch, "performer", eps=1e-4, features=20,
                                         checks=["batch"]), "batch")
        self.assert_fails(longhand.check(functions.performer_with_eps, "performer", features=20,
                                         checks=["reference"]), "reference")

        def padding_seen(q, k, v, mask, causal):
            return functions.softmax(q, k, v, np.ones_like(mask), causal)

        self.assert_fails(longhand.check(padding_seen, "softmax", checks=BRIEF), "padding", "reference")

        def writes(q, k, v):
            v *= 2
            return functions.softmax(q, k, v / 2, np.ones(q.shape[:2], bool), False)

        self.assert_fails(longhand.check(writes, "softmax"), "deterministic")

        def random(q, k, v):
            return functions.softmax(q, k, v, np.ones(q.shape[:2], bool), False) + np.random.normal() * 1e-12

        self.assertEqual(longhand.check(random, "softmax", checks=["deterministic", "reference"]).failed, ["deterministic"])

    def test_a_function_without_padding_gets_sequences_without_it(self):
        def plain(q, k, v):
            return functions.softmax(q, k, v, np.ones(q.shape[:2], bool), True)

        report = longhand.check(plain, "softmax", causal=True)
        self.assertTrue(report.passed, str(report))
        self.assertNotIn("padding", [each.name for each in report])

    def test_functions_in_float32(self):
        def narrow(q, k, v, mask, causal):
            return functions.softmax(*[a.astype(np.float32) for a in (q, k, v)], mask, causal)

        self.assert_fails(longhand.check(narrow, "softmax", causal=False, checks=["reference"]), "reference")
        self.assertIn("dtype=\"float32\"", str(longhand.check(narrow, "softmax", checks=["reference"])))
        report = longhand.check(narrow, "softmax", dtype="float32")
        self.assertTrue(report.passed, str(report))

        def half(q, k, v, mask, causal):
            return functions.softmax(*[a.astype(np.float16) for a in (q, k, v)], mask, causal).astype(np.float32)

        self.assert_fails(longhand.check(half, "softmax", dtype="float32", checks=["reference"]), "reference")

    def test_without_a_name(self):
        def mean(q, k, v, lengths):
            return np.cumsum(v, 1) / np.arange(1, v.shape[1] + 1)[:, None, None].astype(v.dtype)

        def future(q, k, v):
            return v + v.sum(1, keepdims=True)

        self.assertTrue(longhand.check(mean, causal=True).passed, str(longhand.check(mean, causal=True)))
        self.assertEqual(longhand.check(future, causal=True).failed, ["causality"])
        self.assertTrue(longhand.check(future, causal=False).passed)

    def test_gradients_of_the_function(self):
        def mean(q, k, v, lengths):
            real = np.arange(v.shape[1]) < lengths[:, None]
            return np.broadcast_to((v * real[..., None, None]).sum(1, keepdims=True) / np.maximum(lengths, 1)[:, None, None, None].astype(v.dtype), v.shape)

        def vjp(q, k, v, dy, lengths, factor=1):
            real = np.arange(v.shape[1]) < lengths[:, None]
            dv = np.broadcast_to(dy.sum(1, keepdims=True) / np.maximum(lengths, 1)[:, None, None, None].astype(v.dtype), v.shape) * real[..., None, None]
            return np.zeros_like(q), np.zeros_like(k), dv * factor

        report = longhand.check(mean, "mean", vjp=vjp)
        self.assertTrue(report.passed, str(report))
        self.assertIn("gradients", [each.name for each in report])
        wrong = longhand.check(mean, "mean", vjp=lambda *a, **b: vjp(*a, **b, factor=2))
        self.assert_fails(wrong, "gradients", "reference")

    def test_what_was_not_run_is_said(self):
        report = longhand.check(lambda q, k, v: functions.softmax(q, k, v, np.ones(q.shape[:2], bool), True).astype(q.dtype),
                                "softmax", causal=True, dtype="float32")
        self.assertTrue(report.passed, str(report))
        for name, why in {"padding": "has no mask", "gradients": "has no vjp", "golden": "golden=FOLDER",
                          "tiled": "float64", "prefixes": "argument causal"}.items():
            self.assertIn(why, report.skipped[name])
        self.assertFalse(report.skipped.keys() & {each.name for each in report})
        self.assertIn("not run gradients: the function has no vjp", str(report))
        report = longhand.check(functions.performer, "performer", eps=1e-4, features=20, checks=["no-collapse"])
        self.assertIn("no case of it has the options", report.skipped["no-collapse"])

    def test_golden_numbers(self):
        report = longhand.check(functions.softmax, "softmax", checks=["golden"], golden=GOLDEN)
        self.assertTrue(report.passed, str(report))
        self.assertRegex(report[0].measured, r"^[1-9]\d* cases; 0 of other options")
        self.assert_fails(longhand.check(functions.softmax_off_by_one, "softmax", causal=True, checks=["golden"],
                                         golden=GOLDEN), "golden")
        report = str(longhand.check(functions.gla, "gla", checks=["golden"], golden=GOLDEN, **GATED))
        self.assertRegex(report, "0 cases; [1-9][0-9]* of other options, or of operations below the variant\n *no golden case")

    def test_what_a_function_does_wrong_is_said(self):
        def report(f):
            return str(longhand.check(f, "softmax", checks=["reference"]))

        self.assertIn("ZeroDivisionError", report(lambda q, k, v: 1 / 0))
        self.assertIn("returned an array of shape [2, 1, 2]", report(lambda q, k, v: v[..., 0]))
        self.assertIn("threw an exception", report(lambda q, k, v: None))
        for call, message in [
            (lambda: longhand.check(lambda q, k, v, other: v, "softmax"), "requires \"other\""),
            (lambda: longhand.check(3, "softmax"), "function"),
            (lambda: longhand.check(functions.softmax, "softmax", checks=["causalty"]), "did you mean causality"),
            (lambda: longhand.check(functions.softmax, "softmax", feature=3), "feature"),
            (lambda: longhand.check(functions.gla, "gla", causal=False, **GATED), "causal"),
        ]:
            with self.assertRaisesRegex(longhand.Error, message):
                call()

        def interrupted(q, k, v):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            longhand.check(interrupted, "softmax")


@unittest.skipUnless(torch, "PyTorch is not installed")
class TorchTest(unittest.TestCase):
    """Functions of PyTorch tensors."""

    def check(self, kernel, name, **options):
        def tensors(*arrays):
            return [torch.from_numpy(np.ascontiguousarray(a)).requires_grad_() for a in arrays]

        takes = inspect.signature(kernel).parameters

        def function(q, k, v, x, parameters, causal):
            q, k, v, x = tensors(q, k, v, x if x is not None else q)
            p = {key: torch.from_numpy(value.copy()) for key, value in parameters.items()}
            return kernel(**{key: value for key, value in dict(q=q, k=k, v=v, x=x, p=p, causal=causal).items() if key in takes})

        def run(q, k, v, x, parameters, causal):
            return function(q, k, v, x, parameters, causal).detach().numpy()

        return longhand.check(run, name, **options)

    def test_gla_of_fla(self):
        def naive_recurrent_gla(q, k, v, x, p):  # as in flash-linear-attention, fla/ops/gla/naive.py
            logits = x @ p["decay.weight_in"].T @ p["decay.weight_out"].T + p["decay.bias"]
            gk = (torch.nn.functional.logsigmoid(logits) / 16).view_as(q)
            q, k, v, gk = (t.transpose(1, 2) for t in (q, k, v, gk))
            o, h = torch.zeros_like(v), q.new_zeros(*q.shape[:2], q.shape[3], v.shape[3])
            for i in range(q.shape[2]):
                h = h * gk[:, :, i].exp()[..., None] + k[:, :, i][..., None] * v[:, :, i][..., None, :]
                o[:, :, i] = (q[:, :, i][..., None] * q.shape[3] ** -0.5 * h).sum(-2)
            return o.transpose(1, 2)

        report = self.check(naive_recurrent_gla, "gla", temperature=16, checks=["reference", "causality", "batch", "precision"], **GATED)
        self.assertTrue(report.passed, str(report))
        report = self.check(lambda q, k, v, x, p: naive_recurrent_gla(q, k, v, x, {**p, "decay.bias": 0 * p["decay.bias"]}), "gla", temperature=16,
                            checks=["reference", "causality"], **GATED)
        self.assertEqual(report.failed, ["reference"])

    def test_performer_in_chunks(self):
        def performer(q, k, v, p, diagonal=0, chunk=16):  # as a kernel in Triton: a state per chunk, masked pairs within
            def features(x, top):
                x = x * x.shape[-1] ** -0.25
                u = x @ p["features"].T - (x * x).sum(-1, keepdim=True) / 2
                return (u - u.amax(top, keepdim=True)).exp()

            f, g = features(q, (3,)).transpose(1, 2), features(k, (1, 3)).transpose(1, 2)
            v = torch.cat([v, torch.ones_like(v[..., :1])], -1).transpose(1, 2)
            state, out = 0, []
            for i in range(0, f.shape[2], chunk):
                a, b, c = (t[:, :, i:i + chunk] for t in (f, g, v))
                pairs = (a @ b.transpose(2, 3)).tril(diagonal)
                out.append(pairs @ c + (a @ state if i else 0))
                state = state + b.transpose(2, 3) @ c
            out = torch.cat(out, 2).transpose(1, 2)
            return out[..., :-1] / out[..., -1:]

        # It has the numbers of the formula, and one maximum over all keys, which sees the future and underflows.
        names = ["reference", "deterministic", "batch", "causality", "values", "large-norms"]
        report = self.check(performer, "performer", causal=True, features=20, checks=names)
        self.assertEqual(report.failed, ["batch", "causality", "large-norms"], str(report))
        wrong = self.check(lambda q, k, v, p: performer(q, k, v, p, diagonal=1), "performer", causal=True, features=20, checks=names[:1])
        self.assertEqual(wrong.failed, ["reference"])


class TaskTest(unittest.TestCase):
    def test_batches(self):
        task = longhand.task("parity", batch_size=8, seed=1, length=10, train_size=36)
        self.assertEqual((task.vocabulary, task.classes, task.per_token, len(task)), (2, 2, True, 5))
        batches = list(task)
        self.assertEqual([batch.tokens.shape for batch in batches], [(8, 10)] * 4 + [(4, 10)])
        tokens, targets, lengths = batches[0]
        self.assertIsNone(lengths)
        np.testing.assert_array_equal(targets, np.cumsum(tokens, 1) % 2)
        first = np.concatenate([batch.tokens for batch in batches])
        second = np.concatenate([batch.tokens for batch in task])
        self.assertFalse(np.array_equal(first, second))
        np.testing.assert_array_equal(np.unique(first, axis=0), np.unique(second, axis=0))
        again = longhand.task("parity", batch_size=8, seed=1, length=10, train_size=36)
        np.testing.assert_array_equal(first, np.concatenate([batch.tokens for batch in again]))

    def test_errors(self):
        for call, message in [
            (lambda: longhand.task("parrity"), "parity"),
            (lambda: longhand.task("parity", lenth=3), "length"),
            (lambda: longhand.task("parity", "train", batch_size=0), "batch_size"),
            (lambda: list(longhand.task("parity", batch_size=0)), "batch_size"),
            (lambda: longhand.task("parity", "trian"), "trian"),
        ]:
            with self.assertRaisesRegex(longhand.Error, message):
                call()
        self.assertIn("parity", longhand.tasks())


if __name__ == "__main__":
    unittest.main()
