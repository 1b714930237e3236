"""Who may call what, and what a page may load."""

import json
import re
import stat

import pytest
from running import running

from everlearn.cli import main
from everlearn.service.run import name_folders, serve
from everlearn.service.tokens import Tokens

X = {"x": [[1.0, 2.0]]}
CALLS = {
    "predict": [("POST", "/v1/predict", X), ("GET", "/v1/status", None), ("GET", "/metrics", None)],
    "learn": [("POST", "/v1/observe", X | {"y": ["a"]}), ("POST", "/v1/ask", X | {"ids": [1]})],
    "admin": [("POST", "/v1/forget", {"label": "a"}), ("POST", "/v1/delete", {"ids": [1]})],
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A service with a token of each scope."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = Tokens(folder / "tokens.json")
    secrets = {scope: tokens.create(scope, [scope]) for scope in ("predict", "learn", "admin")}
    with running(folder, tokens=tokens) as service:
        yield service, secrets


def statuses(service, scope, secret):
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return {
        service.http.request(method, service.url + path, json=fields, headers=headers).status_code
        for method, path, fields in CALLS[scope]
    }


@pytest.mark.parametrize("scope", CALLS)
def test_each_scope_opens_its_own_operations_and_admin_all(guarded, scope):
    service, secrets = guarded
    for holder, secret in secrets.items():
        found = statuses(service, scope, secret)
        if holder in (scope, "admin"):
            assert not found & {401, 403}
        else:
            assert found == {403}
    for wrong in (None, "", "evl_" + "a" * 43, secrets[scope][:-1], secrets[scope] + "x"):
        assert statuses(service, scope, wrong) == {401}


def test_health_and_the_empty_page_need_no_token(guarded):
    service, _ = guarded
    for path in ("/healthz", "/readyz", "/", "/static/dashboard.js"):
        assert service.http.get(service.url + path).status_code == 200


def test_the_file_holds_hashes_and_belongs_to_its_owner(tmp_path):
    tokens = Tokens(tmp_path / "new" / "tokens.json")
    secret = tokens.create("camera", ["learn"])
    text = tokens.path.read_text()
    assert secret not in text
    assert secret[4:] not in text
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    again = Tokens(tokens.path)
    assert again.find(secret) == next(iter(tokens))
    again.revoke("camera")
    assert Tokens(tokens.path).find(secret) is None


@pytest.mark.parametrize(
    ("name", "scopes", "sentence"),
    [
        ("a", ["learn"], "already"),
        ("b", ["larn"], "did you mean 'learn'?"),
        ("b", [], "needs a scope"),
        ("", ["learn"], "1 to 100 printable"),
    ],
)
def test_a_token_that_can_not_be_made_leaves_the_file_as_it_was(tmp_path, name, scopes, sentence):
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.create("a", ["predict"])
    before = tokens.path.read_bytes()
    with pytest.raises(ValueError, match=re.escape(sentence)):
        tokens.create(name, scopes)
    assert tokens.path.read_bytes() == before


def test_another_address_needs_a_token_and_nothing_is_created(tmp_path):
    with pytest.raises(ValueError, match=r"others can reach 0\.0\.0\.0, so the service needs a token"):
        serve([tmp_path / "folder"], host="0.0.0.0")
    with pytest.raises(ValueError, match="has no token"):
        serve([tmp_path / "folder"], host="0.0.0.0", tokens=tmp_path / "tokens.json")
    assert list(tmp_path.iterdir()) == []


def test_without_tokens_only_localhost_may_be_named(tmp_path):
    with running(tmp_path) as service:
        for host, status in [
            ("evil.example", 421),
            ("127.0.0.1:80", 200),
            ("localhost", 200),
            ("[::1]:8000", 200),
        ]:
            assert service.http.get(f"{service.url}/v1/status", headers={"Host": host}).status_code == status


def test_a_page_of_another_site_can_post_nothing(tmp_path):
    forms = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "")
    with running(tmp_path) as service:
        paths = service.http.get(f"{service.url}/openapi.json").json()["paths"]
        posts = [path.replace("{model}", "model") for path, methods in paths.items() if "post" in methods]
        assert "/v1/snapshot" in posts
        for path in posts:
            for kind in forms:
                answer = service.http.post(service.url + path, content=b"{}", headers={"Content-Type": kind})
                assert answer.status_code == 415, path
        json_body = {"Content-Type": "application/json"}
        assert service.http.post(f"{service.url}/v1/snapshot", headers=json_body).status_code == 200
        answer = service.http.post(f"{service.url}/v1/predict?t=1&t=2", content=b"{}", headers=json_body)
        assert answer.json()["detail"] == "the query parameter 't' is given twice"


def test_every_answer_has_a_policy_without_inline_code_or_other_hosts(guarded):
    service, _ = guarded
    for path in ("/", "/docs", "/v1/status", "/nothing"):
        headers = service.http.get(service.url + path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    for path in ("/", "/docs"):
        page = service.http.get(service.url + path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", page)


def test_nothing_in_the_service_unpickles():
    from everlearn.service.app import STATIC

    for file in STATIC.parent.glob("*.py"):
        text = file.read_text("utf-8")
        assert not re.search(r"import pickle|allow_pickle=True|torch\.load|joblib", text), file.name


def test_tokens_on_the_command_line(tmp_path, capsys):
    file = ["--file", str(tmp_path / "tokens.json")]
    assert main(["token", "create", "camera", "--scopes", "learn", *file]) == 0
    secret = capsys.readouterr().out.strip()
    assert Tokens(tmp_path / "tokens.json").find(secret).scopes == ("learn",)
    assert main(["token", "list", *file]) == 0
    assert capsys.readouterr().out == "camera: learn\n"
    assert main(["token", "revoke", "camra", *file]) == 2
    assert "did you mean 'camera'?" in capsys.readouterr().err
    assert main(["token", "revoke", "camera", *file]) == 0
    assert json.loads((tmp_path / "tokens.json").read_text()) == {"tokens": []}


def test_names_of_models():
    found = name_folders(["a=/data/one", "/data/two"])
    assert {name: str(path) for name, path in found.items()} == {"a": "/data/one", "two": "/data/two"}
    for wrong in (["a=1", "a=2"], ["a/b=1"], []):
        with pytest.raises(ValueError, match=r"two models|a model's name|no folder"):
            name_folders(wrong)
