import pytest
@pytest.mark.parametrize("n", range(30))
def test_it(start, tmp_path, n):
    p = start("write", "a-1", "T", cwd=tmp_path)
    out, err = p.communicate(timeout=120)
    if err: print(err); (tmp_path.parent.parent.parent / f"fail-{n}.txt").write_text(err)
    assert err == ""
