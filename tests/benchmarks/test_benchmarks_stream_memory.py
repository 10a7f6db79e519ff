"""What a corpus that streams costs: every pair is read once, window by window."""

from benchmarks.stream_memory import read_windows, write_corpus


def test_windows_of_all_files(tmp_path):
    write_corpus(tmp_path, 250, 3, words=1_000)

    windows = list(read_windows(tmp_path, 100))

    assert [read for read, _, _ in windows] == [100, 200, 250]
    assert all(seconds > 0 and memory > 0 for _, seconds, memory in windows)
