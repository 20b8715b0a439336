"""Ask the processor to load rows that will be needed soon, while it works on others."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from fultr.core.arrays import Float32s


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """LLVM's prefetch, for reading, of the cache line that holds element `index` of a contiguous array."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        builder.call(function, [address, word(0), word(2), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), build


@njit(nogil=True, cache=True, forceinline=True)
def prefetch_rows(features: Float32s, first: int, end: int) -> None:
    """Begin to load rows `first` to `end`; returns at once and changes nothing."""
    width = features.shape[1]
    for i in range(first * width, end * width, 16):  # 16 float32 to a cache line
        _prefetch(features, i)  # type: ignore[call-arg]
