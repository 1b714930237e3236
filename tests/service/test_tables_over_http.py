"""DataFrames and rows with named columns over HTTP: the learner of the service sees them as it does locally."""

import json

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from running import running, small

from everlearn import Client, open_live
from everlearn.core.table import Table
from everlearn.service import wire
from everlearn.service.limits import Limits
from everlearn.service.sources import Message
from everlearn.service.tables import encode_table, read_table

ORDERS = pd.DataFrame(
    {"amount": [12.5, 310.0, 8.0], "country": ["NO", "IT", None], "returning": [True, False, True]}
)
LABELS = ["fine", "fraud", "fine"]
ROWS = [
    {"amount": 12.5, "country": "NO", "returning": True},
    {"amount": 310, "country": "IT", "returning": False},
]


def same(learner, other):
    state, expected = learner.state_dict(), other.state_dict()
    assert learner.columns == other.columns
    return all(torch.equal(state[key], expected[key]) for key in expected if key != "meta")


@pytest.mark.parametrize(
    "frame",
    [
        ORDERS,
        pl.DataFrame({"amount": [12.5, 310.0, 8.0], "country": ["NO", "IT", None]}),
        ORDERS[["amount", "returning"]],
        ORDERS.assign(country=None),
        ORDERS.to_dict("records"),
        ORDERS.assign(country=pd.Categorical(["NO", "IT", "NO"], [f"{i}" for i in range(40)] + ["NO", "IT"])),
        ORDERS.assign(country=pd.Categorical([3, 1, 3])),
        ORDERS.rename(columns={"amount": 0, "country": ("a", 1)}),
    ],
)
def test_a_frame_of_the_client_teaches_as_a_local_one_does(tmp_path, frame):
    local = small()
    with running(tmp_path) as service, Client(service.url) as client:
        for _ in range(3):
            client.observe(frame, LABELS)
            local.observe(frame, LABELS)
        assert same(service.model.live.learner, local)
        assert client.predict(frame, min_position=client.position) == local.predict(frame)
        client.ask(["a", "b", "c"], frame)
        client.tell(["a", "b", "c"], LABELS)
        local.observe(frame, LABELS)
        assert same(service.model.live.learner, local)


def test_columns_in_another_order_give_the_same_predictions(tmp_path):
    with running(tmp_path) as service, Client(service.url) as client:
        client.observe(ORDERS, LABELS)
        rows = client.predict_proba(ORDERS)
        turned = ORDERS[["returning", "country", "amount"]]
        np.testing.assert_array_equal(client.predict_proba(turned), rows)
        with pytest.raises(ValueError, match="lacks the column 'amount'"):
            client.predict(ORDERS[["country", "returning"]])
        with pytest.raises(ValueError, match="no value in the column 'amount', row 1"):
            client.observe(ORDERS.assign(amount=[1.0, None, 2.0]), LABELS)
        with pytest.raises(ValueError, match="inf in the column 'amount', row 2"):
            client.observe(ORDERS.assign(amount=[1.0, 1.0, np.inf]), LABELS)
        assert service.model.live.learner.batches == 1


def test_what_a_table_taught_is_there_after_a_restart(tmp_path):
    with running(tmp_path) as service, Client(service.url) as client:
        client.observe(ORDERS, LABELS)
        before = client.predict_proba(ORDERS)
    with open_live(tmp_path / "model") as live:
        np.testing.assert_allclose(live.predict_proba(ORDERS), before, atol=1e-6)


def test_rows_of_json_are_objects_or_lists_with_columns_apart(tmp_path):
    with running(tmp_path) as service:

        def post(operation, **fields):
            return service.http.post(f"{service.url}/v1/{operation}", json=fields).json()

        assert post("observe", x=ROWS, y=["fine", "fraud"])["samples"] == 2
        assert service.model.live.learner.columns.categories[1] == {"NO": 0, "IT": 1}
        as_objects = post("predict", x=ROWS, probabilities=True)
        names = ["country", "amount", "returning"]
        lists = [[row[name] for name in names] for row in ROWS]
        as_lists = post("predict", x=lists, columns=names, probabilities=True)
        assert as_objects == as_lists
        assert post("ask", ids=["a", "b"], x=ROWS)["labels"] == as_objects["labels"]


def test_an_array_has_the_names_of_its_columns_in_the_query(tmp_path):
    import io

    file = io.BytesIO()
    np.save(file, np.array([[1.0, 2.0], [3.0, 4.0]]))
    with running(tmp_path) as service:
        answer = service.http.post(
            f"{service.url}/v1/observe",
            params={"columns": '["a", "b"]', "y": "[0, 1]"},
            content=file.getvalue(),
            headers={"Content-Type": wire.NPY},
        )
        assert answer.status_code == 200
        assert service.model.live.learner.columns.names == ("a", "b")
        answer = service.http.post(
            f"{service.url}/v1/predict",
            params={"columns": '["a"]'},
            content=file.getvalue(),
            headers={"Content-Type": wire.NPY},
        )
        assert "does not fit the number of columns, 1" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"x": [{"a": 1}, {"b": 1}]}, "sample 1 of x lacks the column 'a'"),
        ({"x": [{"a": 1}, {"a": 1, "b": 1}]}, "sample 1 of x has the column 'b' besides"),
        ({"x": [{"a": 1}, [1, 2]]}, "sample 1 of x must have one value for each column, 1 in all"),
        ({"x": [{}]}, "needs a column at least"),
        ({"x": [[1]], "columns": "a"}, "columns must be a list, not a string"),
        ({"x": [[1, 2]], "columns": ["a", "a"]}, "two columns named 'a'"),
        ({"x": [[1]], "columns": ["a"], "categories": [-1]}, "categories must be a list"),
        ({"x": [[1]], "categories": [1]}, "categories belongs to columns"),
        ({"x": [{"a": 10**400}]}, "the column 'a' can't be read"),
        ({"x": [{"a": {"what": 1}}]}, "which is not a label"),
        ({"x": [], "columns": ["a"]}, "x has no samples"),
        ({"x": [{"a": 1}] * 6}, "x has 6 samples; a request takes 1 to 5"),
        ({"x": [dict.fromkeys("abcd", 1)]}, "a sample has 4 values, above 3"),
        ({"x": [{"a": "x" * 101}]}, "a name or category of more than 100 characters"),
        ({"x": [{"a" * 101: 1}]}, "a name or category of more than 100 characters"),
    ],
)
def test_a_table_that_is_wrong_or_beyond_the_limits_is_refused(tmp_path, fields, sentence):
    with running(tmp_path, limits=Limits(batch=5, sample=3, label=100)) as service:
        answer = service.http.post(f"{service.url}/v1/observe", json={**fields, "y": [0] * len(fields["x"])})
        assert (answer.status_code, sentence in answer.json()["detail"]) == (400, True), answer.json()
        assert service.model.live.position == 0


def test_a_model_that_began_without_names_takes_no_table(tmp_path):
    with running(tmp_path) as service, Client(service.url) as client:
        client.observe(np.eye(2, dtype=np.float32), [0, 1])
        for call in (lambda x: client.observe(x, [0]), client.predict, lambda x: client.ask(["a"], x)):
            with pytest.raises(ValueError, match="the first samples of model had none: send rows of numbers"):
                call(pd.DataFrame({"a": [1.0], "b": [2.0]}))
        assert service.model.live.position == 1


def test_a_model_with_named_columns_asks_for_them(tmp_path):
    with running(tmp_path) as service, Client(service.url) as client:
        client.observe(ORDERS, LABELS)
        with pytest.raises(
            ValueError, match=r"send objects with a value for each \('amount', 'country', 'ret"
        ):
            client.predict([[12.5, 1.0, 1.0]])
        encoded = service.model.live.learner.encode(ORDERS)
        assert client.predict(encoded) == client.predict(ORDERS)  # as `encode` gives them


def test_input_says_what_the_model_takes(tmp_path):
    with running(tmp_path) as service, Client(service.url) as client:
        assert client.input() == {
            "columns": None,
            "shape": None,
            "type": None,
            "encoder": None,
            "missing_labels": "refuse",
            "position": 0,
        }
        client.observe(ORDERS, LABELS)
        found = client.input()
        assert (found["shape"], found["type"]) == ([34], "float32")
        assert found["columns"][:2] == [
            {"name": "amount", "categories": None},
            {"name": "country", "categories": ["NO", "IT", None]},
        ]


def test_a_mistake_of_a_table_is_shown_by_the_names_of_its_columns(tmp_path):
    from everlearn.service.view import dashboard_of

    with running(tmp_path) as service, Client(service.url) as client:
        client.observe(ORDERS, LABELS)
        for _ in range(3):
            client.observe(ORDERS[:1], ["fraud"])
            client.observe(ORDERS[:1], ["fine"])
        assert client.status()["before_learning"]["samples"] == 6
        shown = json.loads(json.dumps(dashboard_of(service.model)))["mistakes"]
        assert {each["values"] for each in shown} == {"amount 12.5  country NO  returning 1"}


def test_messages_of_a_source_may_be_objects(tmp_path):
    from everlearn.service.consumer import Consumer

    class Once:
        name = "test"

        def close(self):
            pass

    with open_live(tmp_path / "model", small()) as live:
        consumer = Consumer(live, Once(), 10)
        fields = [{"x": row, "y": label} for row, label in zip(ROWS, LABELS, strict=False)]
        consumer._apply([Message(number, each) for number, each in enumerate(fields)])
        consumer._apply([Message(2, {"x": ROWS[0], "id": "a"})])
        assert (consumer.applied, consumer.skipped, live.sources) == (3, 0, {"test": 2})
        assert live.learner.columns.names == ("amount", "country", "returning")


def test_a_table_comes_back_as_it_was():
    table = Table(
        ["n", 0, ("c", 1)],
        [np.array([1.5, np.nan, np.inf]), ["a", None, b"\xff"], [1, 2.5, ("t",)]],
        [0, 0, 7],
    )
    x, fields = encode_table(table)
    back = read_table(
        *(json.loads(json.dumps(each)) for each in (x, fields["columns"], fields["categories"]))
    )
    assert (back.names, back.declared, back.columns[1:]) == (table.names, table.declared, table.columns[1:])
    np.testing.assert_array_equal(back.columns[0], table.columns[0])


def test_a_frame_is_sent_by_the_asynchronous_client_as_well(tmp_path):
    import asyncio

    from everlearn import AsyncClient

    async def talk(url):
        async with AsyncClient(url) as client:
            await client.observe(ORDERS, LABELS)
            return await client.predict(ORDERS, min_position=client.position)

    with running(tmp_path) as service:
        assert asyncio.run(talk(service.url)) == service.model.live.predict(ORDERS)
        assert httpx.get(f"{service.url}/v1/input").json()["columns"][0]["name"] == "amount"


def test_declared_categories_count_towards_the_size_of_a_request(tmp_path):
    wide = {"columns": ["a"], "categories": [2**20], "x": [["u"]] * 100, "ids": list(range(100))}
    with running(tmp_path) as service:
        for route, body in (("ask", wide), ("observe", wide | {"y": ["b"] * 100})):
            answer = httpx.post(f"{service.url}/v1/{route}", json=body)
            assert answer.status_code in (400, 413, 422)
            assert "100 samples of 1,048,576 inputs, categories included" in answer.json()["detail"]
        assert service.model.live.learner.columns is None


def test_columns_that_come_twice_or_besides_are_named():
    with pytest.raises(wire.WireError, match="two columns named 'b'"):
        read_table([[1, 2, 3]], ["a", "b", "b"], None)
    with pytest.raises(wire.WireError, match="sample 1 of x has the column 'c' besides"):
        read_table([{"a": 1}, {"a": 1, "c": 2}], None, None)
