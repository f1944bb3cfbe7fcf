"""flash-attention's package on a virtual GPU: what it computes, and the time that it takes."""

from __future__ import annotations

from tests.virtual_gpu.conftest import OnGpu

_REFERENCE = """
import math
def attention(q, k, v, seen):
    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~seen, -math.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
def agree(a, b):
    print(float((a.detach().cpu() - b).abs().max()) < 1e-5)
torch.manual_seed(0)
"""
_ATTENTION = """
from flash_attn import flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func
q, k, v = torch.randn(2, 6, 4, 8), torch.randn(2, 6, 2, 8), torch.randn(2, 6, 2, 8)
at = [each.cuda().requires_grad_() for each in (q, k, v)]
place = torch.arange(6)
causal = place[:, None] >= place
near = place[:, None] - place <= 2
def expected(seen):
    return torch.stack([attention(q[i], k[i], v[i], seen) for i in range(2)])
agree(flash_attn_func(*at), expected(torch.ones(6, 6, dtype=torch.bool)))
agree(flash_attn_func(*at, causal=True), expected(causal))
agree(flash_attn_func(*at, causal=True, window_size=(2, 0)), expected(causal & near))
# The last two queries see all keys but one, and all.
found = flash_attn_func(at[0][:, 4:], *at[1:], causal=True)
agree(found, expected(causal)[:, 4:])
found.sum().backward()
print(all(float(each.grad.abs().sum()) > 0 for each in at))

ends = torch.tensor([0, 2, 5], dtype=torch.int32).cuda()
found = flash_attn_varlen_func(*(each[0, :5] for each in at), ends, ends, 3, 3, causal=True)
two = [slice(0, 2), slice(2, 5)]
parts = [attention(q[0, own], k[0, own], v[0, own], causal[own, own]) for own in two]
agree(found, torch.cat(parts))
packed = torch.stack([q, k.repeat(1, 1, 2, 1), v.repeat(1, 1, 2, 1)], 2).cuda()
found = flash_attn_qkvpacked_func(packed)
print(torch.equal(found, flash_attn_func(*packed.unbind(2))))
"""
_BESIDE = """
import importlib.metadata, importlib.util
print(importlib.metadata.version("flash_attn"), importlib.util.find_spec("transformer_engine"))
from flash_attn.bert_padding import pad_input, unpad_input
from flash_attn.layers.rotary import apply_rotary_emb
from flash_attn.losses.cross_entropy import CrossEntropyLoss
from flash_attn.ops.rms_norm import rms_norm
x = torch.randn(1, 5, 3, 8)
angle = torch.outer(torch.arange(5.0), 10.0 ** -torch.arange(4))
on_gpu = x.cuda(), angle.cos().cuda(), angle.sin().cuda()
turn = torch.polar(torch.ones(5, 4), angle)[:, None]
halves = torch.complex(*x.chunk(2, -1)) * turn
agree(apply_rotary_emb(*on_gpu), torch.cat((halves.real, halves.imag), -1))
pairs = torch.view_as_complex(x.unflatten(-1, (4, 2))) * turn
agree(apply_rotary_emb(*on_gpu, interleaved=True), torch.view_as_real(pairs).flatten(-2))
weight = torch.rand(8)
normed = x * (x * x).mean(-1, True).add(1e-6).rsqrt() * weight
agree(rms_norm(x.cuda(), weight.cuda(), 1e-6), normed)
labels = torch.tensor([1, 2, -100, 0, 3])
loss = torch.nn.functional.cross_entropy(x[0, :, 0], labels)
agree(CrossEntropyLoss()(x[0, :, 0].cuda(), labels.cuda()), loss)
mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
rows, places, sums, longest, _ = unpad_input(torch.ones(2, 3, 4).cuda(), mask.cuda())
agree(pad_input(rows, places, 2, 3)[:, :, 0], mask.float())
print(tuple(rows.shape), sums.tolist(), longest)
"""


def test_its_attention_is_the_papers(on_gpu: OnGpu) -> None:
    assert on_gpu(_REFERENCE + _ATTENTION, contents="full").split() == ["True"] * 7


def test_what_models_import_beside_it(on_gpu: OnGpu) -> None:
    told = on_gpu(_REFERENCE + _BESIDE, contents="full").splitlines()
    assert told == ["2.8.3 None", *["True"] * 5, "(5, 4) [0, 2, 5] 3"]


def test_it_takes_the_time_of_torchs_attention_and_one_kernel(on_gpu: OnGpu) -> None:
    script = """
from flash_attn import flash_attn_func
q = torch.empty(4, 512, 8, 64, dtype=torch.bfloat16, device="cuda")
def took(act):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before = sum(each[0] for each in gpu.totals().values())
    begin.record()
    act()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end), sum(each[0] for each in gpu.totals().values()) - before
theirs = took(lambda: flash_attn_func(q, q, q, causal=True))
h = q.transpose(1, 2)
ours = took(lambda: torch.nn.functional.scaled_dot_product_attention(h, h, h, is_causal=True))
print(theirs == ours, theirs[0] > 0, theirs[1])
"""
    assert on_gpu(script).split() == ["True", "True", "1"]


def test_what_it_lacks_is_refused_by_name(on_gpu: OnGpu) -> None:
    script = """
from flash_attn import flash_attn_func
q = torch.empty(1, 4, 2, 8, device="cuda")
flash_attn_func(q, q, q, softcap=30.0)
"""
    assert "flash_attn with softcap: not on a virtual GPU" in on_gpu(script, fails=True)
