"""The caching allocator's rules (torch's CUDACachingAllocator): rounding, segments, reserve."""

from __future__ import annotations

from tests.virtual_gpu.conftest import OnGpu


def test_sizes_are_rounded_and_segments_reserved(on_gpu: OnGpu) -> None:
    said = on_gpu("""
        def told(): print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved() >> 20)
        def take(count): return torch.empty(count, dtype=torch.uint8, device="cuda")
        small = take(1); told()
        medium = take((1 << 20) + 1); told()
        large = take((20 << 20) + 1); told()
        del large; told()
        torch.cuda.empty_cache(); told()
        print(torch.cuda.memory_stats()["requested_bytes.all.current"])
    """)
    mib = 1 << 20
    assert [line.split() for line in said.splitlines()] == [
        ["512", "2"],
        [str(512 + mib + 512), "22"],
        [str(512 + mib + 512 + 20 * mib + 512), "44"],
        [str(512 + mib + 512), "44"],
        [str(512 + mib + 512), "22"],
        [str(1 + mib + 1)],
    ]


def test_a_freed_tensor_is_not_handed_out_before_another_stream_is_done_with_it(
    on_gpu: OnGpu,
) -> None:
    said = on_gpu("""
        side = torch.cuda.Stream()
        def take(): return torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
        x = take(); where = x.data_ptr()
        with torch.cuda.stream(side): y = x * 2
        x.record_stream(side); del x
        first = take(); print(first.data_ptr() == where)
        torch.cuda.synchronize(); del first
        second, third = take(), take()
        print(where in (second.data_ptr(), third.data_ptr()))
    """)
    assert said.split() == ["False", "True"]


def test_too_much_is_refused_in_torchs_words(on_gpu: OnGpu) -> None:
    said = on_gpu(
        """
        try:
            torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print(error)
        print(torch.cuda.mem_get_info())
        """,
        memory=2 << 30,
    )
    assert "Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 2.00 GiB" in said
    assert said.splitlines()[-1] == f"({2 << 30}, {2 << 30})"


def test_a_gpu_takes_fewer_addresses_where_a_process_has_no_more(on_gpu: OnGpu) -> None:
    """A process of a guest has 256 GiB of them, and a GPU would have twice its memory."""
    said = on_gpu(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (150 << 30, resource.RLIM_INFINITY))
        x = torch.empty(90 << 30, dtype=torch.uint8, device="cuda")
        print(x.numel())
        """,
        memory=96 << 30,
    )
    assert said == f"{90 << 30}\n"
