from benchmarks.search_features import features, measure


def test_every_feature_is_measured():
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 14, "d_ff": 22, "heads": 2}
    found = measure(sizes, sentences=3, rounds=1)
    assert found.keys() > features(3).keys()
    assert all(speed > 0 for speed in found.values())
