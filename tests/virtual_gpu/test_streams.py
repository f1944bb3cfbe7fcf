"""Hand-made programs whose timelines are known to the nanosecond: a kernel takes a nanosecond for
each byte that it reads or writes, a copy to or from the host one for each that it moves."""

from __future__ import annotations

import pytest

from tests.virtual_gpu.conftest import OnGpu


def test_a_kernel_takes_its_time_and_the_host_does_not_wait(on_gpu: OnGpu) -> None:
    said = on_gpu("""
        x, y = floats(1000), floats(1000)
        begin, end = event(), event()
        begin.record(); z = x + y; end.record()
        print(gpu.host_now_ns(), end.query())
        end.synchronize()
        print(gpu.host_now_ns(), end.query(), round(begin.elapsed_time(end) * 1e6))
    """)
    assert said.split("\n")[:2] == ["0 False", "12000 True 12000"]


def test_two_streams_run_beside_each_other_and_an_event_orders_them(on_gpu: OnGpu) -> None:
    said = on_gpu("""
        x, y = floats(1000), floats(100)
        side = torch.cuda.Stream()
        a = x * 2                          # default: 0 to 8000
        with torch.cuda.stream(side):
            b = y * 2                      # side: 0 to 800
            done = event(); done.record()
            side.wait_stream(torch.cuda.default_stream())
            c = y * 2                      # side: 8000 to 8800
            last = event(); last.record()
        torch.cuda.default_stream().wait_event(done)
        d = y * 2                          # default: 8000 to 8800
        mine = event(); mine.record()
        torch.cuda.synchronize()
        start = event()
        for each in (done, last, mine):
            print(gpu.event_moment(each.event_id).ns)
        print(gpu.host_now_ns())
    """)
    assert said.split() == ["800", "8800", "8800", "8800"]


def test_copies_take_the_links_time_and_pinned_ones_fly(on_gpu: OnGpu) -> None:
    said = on_gpu("""
        pageable, pinned = torch.ones(1000), torch.ones(1000).pin_memory()
        x = pageable.to("cuda", non_blocking=True)      # not pinned: the host waits
        print(gpu.host_now_ns())
        y = pinned.to("cuda", non_blocking=True)
        print(gpu.host_now_ns(), pinned.is_pinned(), pageable.is_pinned())
        torch.cuda.synchronize()
        print(gpu.host_now_ns())
        print(float(y.sum()), gpu.host_now_ns())        # 4004 bytes, then the value is there
        back = y.cpu()
        print(gpu.host_now_ns(), float(back.sum()))
    """)
    assert said.splitlines() == [
        "4000", "4000 True False", "8000", "1000.0 12004", "16004 1000.0"
    ]  # fmt: skip


def test_launches_take_the_hosts_time(on_gpu: OnGpu) -> None:
    said = on_gpu(
        """
        x = floats(10)
        begin, end = event(), event()
        begin.record()
        for _ in range(3): x.mul_(2)      # 80 bytes each, launched at 5, 10 and 15 us
        end.record()
        print(gpu.host_now_ns())
        torch.cuda.synchronize()
        print(gpu.host_now_ns(), round(begin.elapsed_time(end) * 1e6))
        """,
        launch="5us",
    )
    assert said.splitlines() == ["15000", "15080 15080"]


def test_kernels_reach_published_shares_by_class_and_size(on_gpu: OnGpu) -> None:
    """16 GFLOP of a product reach 0.739 of the peak; causal attention of 2,048 reaches 0.301
    forward and 0.294 backward. The peaks are given: an operation takes 1 ns / share."""
    script = """
        def took(act):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            act()
            end.record()
            torch.cuda.synchronize()
            print(round(begin.elapsed_time(end) * 1e6))
        a = torch.empty(2048, 2048, device="cuda", dtype=torch.bfloat16)
        took(lambda: a @ a)
        q = torch.empty(1, 1, 2048, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        out = flash(q, q, q, 0.0, True)
        took(lambda: flash(q, q, q, 0.0, True))
        b = torch.empty(25_000_000, device="cuda", dtype=torch.bfloat16)
        took(b.zero_)
        """
    said = on_gpu(
        script,
        device="h100",
        kernels="published",
        flops="1TFLOPS",
        memory_bandwidth="1TB/s",
    )
    product, attention, memory = map(int, said.split())
    assert product == round(2 * 2048**3 / 1e12 / 0.739 * 1e9)
    assert attention == round(4 * 2048 * 2048 * 64 / 1e12 / 0.301 * 1e9)
    assert memory == round(50_000_000 / 1e12 / 0.767 * 1e9)


def test_a_product_takes_the_time_of_its_flops(on_gpu: OnGpu) -> None:
    said = on_gpu(
        """
        a, b = torch.empty(64, 128, device="cuda"), torch.empty(128, 32, device="cuda")
        a @ b
        torch.cuda.synchronize()
        print(gpu.host_now_ns(), gpu.totals()["aten::mm"])
        """,
        flops="1GFLOPS",
    )
    flops, moved = 2 * 64 * 128 * 32, 4 * (64 * 128 + 128 * 32 + 64 * 32)
    assert said.strip() == f"{flops} (1, {flops}, {flops}, {moved})"


def test_attention_in_16_bits_takes_the_time_of_its_flops_both_ways(on_gpu: OnGpu) -> None:
    """Its log-sum-exp, which has 32 bits, does not slow the products of a backward pass down."""
    said = on_gpu(
        """
        q = torch.empty(1, 8, 4096, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        out = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        out.backward(torch.empty_like(out))
        torch.cuda.synchronize()
        name = "aten::_scaled_dot_product_flash_attention"
        print(*(gpu.totals()[name + end][1] for end in ("", "_backward")))
        """,
        device="h100",
        flops=None,
        memory_bandwidth=None,
    )
    forward, backward = map(int, said.split())
    flops = 2 * 2 * 8 * 4096 * 4096 * 64
    assert forward == pytest.approx(flops / 989e12 * 1e9, rel=1e-3)
    assert backward == pytest.approx(2.5 * forward, rel=1e-3)


def test_a_table_goes_before_the_roofline_and_what_it_lacks_is_told(on_gpu: OnGpu) -> None:
    said = on_gpu(
        """
        x = floats(1000)
        y = x * 2
        z = floats(500) * 2
        torch.cuda.synchronize()
        print(gpu.host_now_ns(), gpu.not_in_table())
        """,
        times=[["aten::mul", [[1000]], "", 77]],
    )
    assert said.strip() == "4077 {'aten::mul of [500,]': 1}"


@pytest.mark.parametrize("name", ["CUDAGraph()", "MemPool()"])
def test_refusals_name_what_is_refused(on_gpu: OnGpu, name: str) -> None:
    said = on_gpu(f"torch.cuda.{name}", fails=True)
    assert "not on a virtual GPU" in said


def test_two_runs_are_the_same(on_gpu: OnGpu) -> None:
    script = """
        torch.manual_seed(1)
        layers = torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
        model = torch.nn.Sequential(*layers).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            loss = model(torch.randn(16, 32, device="cuda")).square().mean()
            loss.backward(); optimizer.step(); optimizer.zero_grad()
            print(loss.item(), gpu.host_now_ns())
        print(gpu.totals(), torch.cuda.max_memory_allocated())
    """
    assert on_gpu(script) == on_gpu(script) != ""
