"""Other libraries' model formats, and the proof that they compute the same."""

from transduce.interop.certificate import Certificate, certify, sha256
from transduce.interop.ctranslate2 import export_ctranslate2
from transduce.interop.ctranslate2_reader import read_ctranslate2
from transduce.interop.ctranslate2_reference import open_ctranslate2
from transduce.interop.eole import read_eole
from transduce.interop.fairseq import read_fairseq
from transduce.interop.joeynmt import read_joeynmt
from transduce.interop.layer_walk import Export
from transduce.interop.marian_export import export_marian
from transduce.interop.marian_npz import read_marian
from transduce.interop.marian_reference import cut_marian, open_marian, why_no_marian
from transduce.interop.marianmt import read_marianmt
from transduce.interop.marianmt_export import export_marianmt
from transduce.interop.marianmt_reference import open_marianmt
from transduce.interop.onnx import export_onnx
from transduce.interop.onnx_reference import open_onnx
from transduce.interop.opennmt import read_opennmt
from transduce.interop.own_reference import open_safetensors, open_written_marian
from transduce.interop.plain_reference import open_plain
from transduce.interop.recognise import FORMATS, Format, recognise
from transduce.interop.reference import Reference, Scorer
from transduce.interop.sentences import SENTENCES
from transduce.interop.sockeye import read_sockeye
from transduce.interop.torch_nn import read_torch_nn
from transduce.interop.torch_nn_reference import open_torch_nn

__all__ = [
    "FORMATS",
    "SENTENCES",
    "Certificate",
    "Export",
    "Format",
    "Reference",
    "Scorer",
    "certify",
    "cut_marian",
    "export_ctranslate2",
    "export_marian",
    "export_marianmt",
    "export_onnx",
    "open_ctranslate2",
    "open_marian",
    "open_marianmt",
    "open_onnx",
    "open_plain",
    "open_safetensors",
    "open_torch_nn",
    "open_written_marian",
    "read_ctranslate2",
    "read_eole",
    "read_fairseq",
    "read_joeynmt",
    "read_marian",
    "read_marianmt",
    "read_opennmt",
    "read_sockeye",
    "read_torch_nn",
    "recognise",
    "sha256",
    "why_no_marian",
]
