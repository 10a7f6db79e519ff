import pickle
import signal

import pytest

from transduce.config import BadInputError, StoppedError, TransduceError


@pytest.mark.parametrize(
    "error", [TransduceError("one thing", "another"), BadInputError("a"), StoppedError("stopped", signal.SIGTERM)]
)
def test_an_error_comes_out_of_another_process_as_it_was(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, copy.status, str(copy)) == (type(error), error.args, error.status, str(error))
