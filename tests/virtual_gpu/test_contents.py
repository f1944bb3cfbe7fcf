"""Which tensors have contents, and what a program sees where one has none."""

from __future__ import annotations

import pytest

from tests.virtual_gpu.conftest import OnGpu


def test_small_tensors_are_computed_and_large_ones_have_shapes(on_gpu: OnGpu) -> None:
    said = on_gpu("""
        small = torch.arange(10, device="cuda").float() * 2
        print(small.sum().item(), gpu.is_known(small))
        large = torch.ones(5000, device="cuda")
        print(large.sum().item(), gpu.is_known(large), gpu.told()[0])
        routed = torch.arange(100_000, device="cuda")
        print(routed.sum().item())
        values, experts = torch.randn(4096, 8, device="cuda").topk(2)
        print(int(experts.max()) < 8, gpu.told()[1])
    """)
    assert said.splitlines() == [
        "90.0 True",
        "0.0 False {'aten::_local_scalar_dense': 1}",
        "4999950000",
        "True {'aten::topk': 1}",
    ]


def test_in_full_a_step_is_the_cpus(on_gpu: OnGpu) -> None:
    said = on_gpu(
        """
        def losses(device):
            torch.manual_seed(0)
            model = torch.nn.Sequential(
                torch.nn.Embedding(50, 64),
                torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True),
                torch.nn.LayerNorm(64), torch.nn.Linear(64, 50))
            words = torch.randint(0, 50, (4, 16))
            model, words = model.to(device), words.to(device)
            optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
            found = []
            for _ in range(5):
                out = model(words)[:, :-1].flatten(0, 1)
                loss = torch.nn.functional.cross_entropy(out, words[:, 1:].flatten())
                optimizer.zero_grad(); loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step(); found.append(loss.item())
            return found
        print(max(abs(a - b) for a, b in zip(losses("cpu"), losses("cuda"))))
        """,
        contents="full",
    )
    assert float(said) < 1e-4


@pytest.mark.parametrize("contents", ["small", "full"])
@pytest.mark.parametrize(
    ("dtype", "heads", "options"),
    [
        ("bfloat16", 4, "is_causal=True"),
        ("float16", 2, "enable_gqa=True, scale=0.3"),
        ("float32", 4, "is_causal=True"),
        ("float32", 4, "attn_mask=mask"),
    ],
    ids=["causal", "groups", "float32", "mask"],
)
def test_fused_attention_is_the_cpus(
    on_gpu: OnGpu, dtype: str, heads: int, options: str, contents: str
) -> None:
    said = on_gpu(
        f"""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        def attended(device, dtype):
            torch.manual_seed(0)
            given = [torch.randn(2, each, 7, 16) for each in (4, {heads}, {heads})]
            given = [each.to(torch.{dtype}).to(device, dtype).requires_grad_() for each in given]
            mask = torch.randn(7, 7).to(device, dtype)
            out = torch.nn.functional.scaled_dot_product_attention(*given, {options})
            out.float().square().sum().backward()
            return [out, *(each.grad for each in given)]
        right = attended("cpu", torch.float32)
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
            found = attended("cuda", torch.{dtype})
        print(all(map(gpu.is_known, found)), *(each for each in gpu.totals() if "scaled" in each))
        off = [b.float().cpu() - a for a, b in zip(right, found)]
        print(max(float(b.abs().max() / a.abs().max()) for a, b in zip(right, off)))
        """,
        contents=contents,
    )
    known, worst = said.splitlines()
    fused = "efficient" if dtype == "float32" else "flash"
    name = f"aten::_scaled_dot_product_{fused}_attention"
    assert known == f"True {name} {name}_backward"
    assert float(worst) < {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]


def test_attention_that_drops_has_a_shape(on_gpu: OnGpu) -> None:
    said = on_gpu("""
        dropped = torch.nn.functional.scaled_dot_product_attention(
            *(torch.randn(1, 2, 8, 16, device="cuda").half() for _ in range(3)), dropout_p=0.5)
        print(tuple(dropped.shape), gpu.is_known(dropped))
    """)
    assert said == "(1, 2, 8, 16) False\n"


def test_mixed_precision_and_scaling(on_gpu: OnGpu) -> None:
    said = on_gpu("""
        model = torch.nn.Linear(512, 512).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(torch.randn(64, 512, device="cuda"))
            loss = out.float().mean()
        scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
        print(out.dtype, scaler.get_scale())
        state = torch.cuda.get_rng_state(); a = torch.rand(4, device="cuda")
        torch.cuda.set_rng_state(state); print(torch.equal(a, torch.rand(4, device="cuda")))
    """)
    assert said.splitlines() == ["torch.float16 65536.0", "True"]


def test_what_a_gpu_refuses_is_refused(on_gpu: OnGpu) -> None:
    mixed = on_gpu("floats(3) + torch.ones(3)", fails=True)
    assert "Expected all tensors to be on the same device" in mixed
    forked = on_gpu(
        """
        import os
        torch.cuda.init()
        child = os.fork()
        if child == 0:
            try: torch.empty(1, device="cuda")
            except RuntimeError as error: print(error, flush=True); os._exit(0)
            os._exit(1)
        print(os.waitpid(child, 0)[1])
        """
    )
    assert "Cannot re-initialize CUDA in forked subprocess" in forked


def test_an_operator_that_the_cpu_lacks_is_named(on_gpu: OnGpu) -> None:
    said = on_gpu(
        "torch.batch_norm_stats(torch.randn(2, 3, 4, device='cuda'), 1e-5)",
        fails=True,
        contents="full",
    )
    assert "aten::batch_norm_stats" in said
