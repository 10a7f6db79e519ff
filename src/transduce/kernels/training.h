// The kernels of a training step that others are made of.
#pragma once
#include "dropping.h"
#include "guard.h"
#include "structures.h"

TRANSDUCE_EXPORT map_rows(const transduce::Bfloat16* x, const transduce::Maps* maps, transduce::Bfloat16* y, std::int64_t rows,
                          std::int64_t activation);
TRANSDUCE_EXPORT map_rows_by_tiles(const transduce::Bfloat16* x, const transduce::Maps* maps, transduce::Bfloat16* y, std::int64_t rows,
                                   std::int64_t activation);
TRANSDUCE_EXPORT map_rows_backward(const transduce::Bfloat16* gradient, const transduce::Bfloat16* x, const transduce::Maps* maps,
                                   transduce::Bfloat16* of_x, std::int64_t rows, std::int64_t add, std::int64_t activation);
TRANSDUCE_EXPORT map_rows_backward_by_tiles(const transduce::Bfloat16* gradient, const transduce::Bfloat16* x, const transduce::Maps* maps,
                                            transduce::Bfloat16* of_x, std::int64_t rows, std::int64_t add, std::int64_t activation);
TRANSDUCE_EXPORT attention_bfloat16(const transduce::Bfloat16* q, const transduce::Bfloat16* k, const transduce::Bfloat16* v,
                                    transduce::Bfloat16* o, float* statistics, const transduce::Sequences* sequences,
                                    const transduce::Dropout* dropout);
TRANSDUCE_EXPORT attention_backward_bfloat16(const transduce::Bfloat16* q, const transduce::Bfloat16* k, const transduce::Bfloat16* v,
                                             const transduce::Bfloat16* of_o, const float* statistics, transduce::Bfloat16* dq,
                                             transduce::Bfloat16* dk, transduce::Bfloat16* dv, const transduce::Sequences* sequences,
                                             const transduce::Dropout* dropout);
TRANSDUCE_EXPORT add_norm_bfloat16(const transduce::AddNorm<transduce::Bfloat16>* all, const transduce::Dropout* dropout);
TRANSDUCE_EXPORT add_norm_backward_bfloat16(const transduce::AddNormBackward<transduce::Bfloat16>* all, const transduce::Dropout* dropout);
TRANSDUCE_EXPORT drop_bfloat16(const transduce::Bfloat16* x, transduce::Bfloat16* y, std::int64_t rows, std::int64_t d,
                               const transduce::Dropout* dropout);
TRANSDUCE_EXPORT activate(const transduce::Bfloat16* x, transduce::Bfloat16* y, std::int64_t rows, std::int64_t width,
                          std::int64_t activation, std::int64_t gated);
TRANSDUCE_EXPORT activate_backward(const transduce::Bfloat16* gradient, const transduce::Bfloat16* x, transduce::Bfloat16* of_x,
                                   std::int64_t rows, std::int64_t width, std::int64_t activation, std::int64_t gated);
