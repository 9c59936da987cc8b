"""Settings: from arguments and the environment, checked before any connection is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

import penstock
from penstock import PenstockError, Settings, Store
from penstock.errors import DatabaseUnreachable, PreparedStatementLost, ValidationError
from penstock.settings import redact

URL = "postgresql://ada:hunter2@db.example:5433/store"


class TestLoading:
    def test_without_anything_means_the_embedded_server(self) -> None:
        settings = Settings.load()

        assert settings.embedded
        assert settings.folder == Path(".penstock")

    def test_has_the_defaults_of_the_specification(self) -> None:
        settings = Settings.load()

        assert (
            settings.schema_name,
            settings.default_batch_size,
            settings.command_timeout_ms,
            settings.transaction_timeout_ms,
            settings.session_timezone,
        ) == ("message_store", 1000, 30_000, 30_000, "UTC")

    def test_takes_an_address_and_options(self) -> None:
        settings = Settings.load(URL, default_batch_size=50)

        assert not settings.embedded
        assert (settings.database_url, settings.default_batch_size) == (URL, 50)

    def test_takes_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENSTOCK_URL", URL)
        monkeypatch.setenv("PENSTOCK_POOL_MAX_SIZE", "3")
        monkeypatch.setenv("PENSTOCK_SQL_CONDITION", "on")
        monkeypatch.setenv("PENSTOCK_READ_ONLY", "No")
        monkeypatch.setenv("PENSTOCK_FOLDER", "/data/penstock")
        monkeypatch.setenv("PENSTOCK_PORT", "")

        settings = Settings.load()

        assert (settings.database_url, settings.pool_max_size) == (URL, 3)
        assert (settings.sql_condition, settings.read_only) == (True, False)
        assert (settings.folder, settings.port) == (Path("/data/penstock"), None)

    def test_prefers_an_argument_to_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENSTOCK_URL", "postgresql://elsewhere/store")
        monkeypatch.setenv("PENSTOCK_POOL_MAX_SIZE", "3")

        settings = Settings.load(URL, pool_max_size=7)

        assert (settings.database_url, settings.pool_max_size) == (URL, 7)

    def test_refuses_an_option_that_does_not_exist(self) -> None:
        with pytest.raises(ValidationError, match=r"'pool_size'") as caught:
            Settings.load(pool_size=3)

        assert "pool_max_size" in str(caught.value)

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("PENSTOCK_POOL_MAX_SIZE", "three"),
            ("PENSTOCK_POOL_MAX_SIZE", "3.5"),
            ("PENSTOCK_READ_ONLY", "maybe"),
            ("PENSTOCK_MAX_REPLICA_LAG", "-1"),
            ("PENSTOCK_MAX_REPLICA_LAG", "soon"),
        ],
    )
    def test_names_a_variable_that_cannot_be_read(
        self, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
    ) -> None:
        monkeypatch.setenv(variable, value)

        with pytest.raises(ValidationError, match=value) as caught:
            Settings.load()

        assert caught.value.name == variable

    def test_makes_a_value_that_cannot_be_changed(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            Settings.load().port = 5  # type: ignore[misc]

    def test_may_be_done_before_connecting(self, database_url: str) -> None:
        settings = Settings.load(database_url, default_batch_size=7)

        with penstock.connect(settings, pool_max_size=2) as store:
            assert store.settings == dataclasses.replace(settings, pool_max_size=2)

    def test_does_not_let_an_option_pass_that_does_not_exist(self) -> None:
        with pytest.raises(ValidationError, match=r"'pool_size'"):
            penstock.connect(Settings.load(URL), pool_size=3)


class TestTheAddress:
    def test_may_come_in_parts(self) -> None:
        settings = Settings.load(
            host="db.example",
            port=5433,
            dbname="store",
            user="ada",
            password="it's \\ a secret",
            sslmode="verify-full",
            sslrootcert="/ca.pem",
            sslcert="/c.pem",
            sslkey="/k.pem",
        )

        parts = conninfo_to_dict(settings.conninfo())
        assert not settings.embedded
        assert {name: parts[name] for name in parts if name not in OURS} == {
            "host": "db.example",
            "port": "5433",
            "dbname": "store",
            "user": "ada",
            "password": "it's \\ a secret",
            "sslmode": "verify-full",
            "sslrootcert": "/ca.pem",
            "sslcert": "/c.pem",
            "sslkey": "/k.pem",
        }

    def test_may_be_a_url_with_parts_changed(self) -> None:
        settings = Settings.load(URL + "?sslmode=require", dbname="other", password="changed")

        parts = conninfo_to_dict(settings.conninfo())
        assert (parts["host"], parts["dbname"], parts["password"], parts["sslmode"]) == (
            "db.example",
            "other",
            "changed",
            "require",
        )

    def test_may_be_in_the_form_of_libpq(self) -> None:
        settings = Settings.load("host=db.example dbname=store")

        assert settings.where() == "db.example:5432/store"

    def test_keeps_what_it_says_itself(self) -> None:
        settings = Settings.load(URL + "?application_name=billing&connect_timeout=3")

        parts = conninfo_to_dict(settings.conninfo())
        assert (parts["application_name"], parts["connect_timeout"]) == ("billing", "3")

    def test_gives_way_to_an_argument(self) -> None:
        url = URL + "?application_name=billing&connect_timeout=3"
        settings = Settings.load(url, application_name="shop", connect_timeout_ms=5000)

        parts = conninfo_to_dict(settings.conninfo())
        assert (parts["application_name"], parts["connect_timeout"]) == ("shop", "5")

    def test_may_name_several_servers(self) -> None:
        settings = Settings.load("postgresql://one:5432,two:5433/store")

        assert settings.where() == "one,two:5432,5433/store"

    def test_is_reported_without_the_password(self) -> None:
        settings = Settings.load(URL, password="hunter3")

        shown = f"{settings!r} {settings} {settings.where()}"

        assert "hunter" not in shown
        assert settings.where() == "db.example:5433/store"


OURS = ("application_name", "connect_timeout", "client_encoding")

NO_URLS: list[Any] = [
    "",
    "   ",
    "not a url",
    "localhost",
    "http://localhost/store",
    "mysql://localhost/store",
    "postgresql://[::1",
    "postgresql://host:port/store",
    "postgresql://host/store?nonsense=1",
    "nonsense=1",
    "postgresql://host/\0store",
    "postgresql://host/\ud800store",
    5,
    b"postgresql://host/store",
]

SECRETS = [
    "http://ada:hunter2@host/store",
    "postgres//ada:hunter2@host/store",
    "ada:hunter2@host/store",
    "postgresql://ada:hunter2",
    "postgresql://ada:hunter2/store",
    "postgresql://ada:hunter2@host:port/store",
    "postgresql://ada:hun/ter2@host/store",
    "postgresql://ada:hun@ter2@host/store",
    "postgresql://ada:hunter2@[::1/store",
    "postgresql://ada:%zzhunter2@host/store",
    "postgresql://host/store?password=hunter2&nonsense=1",
    "postgresql://host/store?password=hunter2\0",
    "host=db password=hunter2 nonsense=1",
    "host=db password='hunter2",
    "host=db password = 'it''s hunter2' nonsense=1",
    "password=hunter2 host",
]


class TestBadInput:
    @pytest.mark.parametrize("url", NO_URLS)
    def test_an_address_that_is_none_is_refused(self, url: Any) -> None:
        with pytest.raises(ValidationError, match=r"^database_url must be"):
            Settings.load(url)

    @pytest.mark.parametrize("url", SECRETS)
    def test_a_password_in_an_address_that_is_none_is_not_shown(self, url: str) -> None:
        with pytest.raises(PenstockError) as caught:
            penstock.connect(url)

        shown = f"{caught.value} {caught.value!r} {vars(caught.value)}"
        assert "hunter2" not in shown
        assert "ter2" not in shown

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("port", 0),
            ("port", 65536),
            ("port", "5432"),
            ("default_batch_size", 0),
            ("default_batch_size", -1),
            ("default_batch_size", 1.5),
            ("default_batch_size", True),
            ("command_timeout_ms", 0),
            ("command_timeout_ms", 2**31),
            ("transaction_timeout_ms", 2**31),
            ("connect_timeout_ms", None),
            ("pool_min_size", -1),
            ("pool_max_size", 0),
            ("pool_timeout_ms", "soon"),
            ("session_timezone", "Mars/Base"),
            ("session_timezone", ""),
            ("session_timezone", None),
            ("session_timezone", 5),
            ("schema_name", "public"),
            ("application_name", "a\0b"),
            ("host", 5),
            ("user", "a\ud800"),
            ("sslmode", "always"),
            ("sql_condition", "off"),
            ("read_only", 1),
            ("prepared_statements", None),
            ("folder", ""),
            ("folder", None),
        ],
    )
    def test_a_value_that_cannot_work_is_refused_by_its_name(self, name: str, value: Any) -> None:
        with pytest.raises(ValidationError) as caught:
            Settings.load(**{name: value})

        assert (caught.value.name, caught.value.value) == (name, value)

    def test_a_pool_below_its_least_size_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="at least pool_min_size, 4"):
            Settings.load(pool_min_size=4, pool_max_size=3)

    def test_an_unknown_ssl_mode_in_an_address_is_refused(self) -> None:
        with pytest.raises(ValidationError, match=r"sslmode.*'always'"):
            Settings.load(URL + "?sslmode=always")

    @pytest.mark.parametrize("password", ["hunter2\0", 12345, "hunter2\ud800"])
    def test_a_bad_password_is_not_shown(self, password: Any) -> None:
        with pytest.raises(ValidationError, match="password") as caught:
            Settings.load(password=password)

        assert caught.value.value == "***"


class TestRedact:
    @pytest.mark.parametrize(
        "url",
        [
            URL,
            "postgresql://ada:hun@t/er2@host/store",
            "postgresql://host/store?password=hunter2&sslmode=require",
            "host=db password=hunter2 dbname=store",
            r"host=db password = 'it\'s hunter2' dbname=store",
            "sslpassword=hunter2",
        ],
    )
    def test_blots_out_what_may_be_a_password(self, url: str) -> None:
        assert "er2" not in redact(f'failed: "{url}"')

    def test_leaves_the_rest_as_it_is(self) -> None:
        text = 'connection to server at "localhost" (::1), port 5432 failed: refused'

        assert redact(text) == text


class TestEachConnection:
    def test_is_set_up_as_the_settings_say(self, database_url: str) -> None:
        wanted = {
            "TimeZone": "Asia/Tokyo",
            "statement_timeout": "1500ms",
            "application_name": "billing",
            "default_transaction_read_only": "on",
        }

        with (
            penstock.connect(
                database_url,
                session_timezone="Asia/Tokyo",
                command_timeout_ms=1500,
                application_name="billing",
                read_only=True,
            ) as store,
            store.transaction() as transaction,
        ):
            rows = transaction.connection.execute(
                "select s, current_setting(s) from unnest(%s::text[]) s", [list(wanted)]
            ).fetchall()

        assert dict(rows) == wanted

    @pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
    def test_speaks_utf_8_whatever_the_environment_says(
        self, database_url: str, monkeypatch: pytest.MonkeyPatch, encoding: str
    ) -> None:
        monkeypatch.setenv("PGCLIENTENCODING", encoding)

        with penstock.connect(database_url) as store:
            store.write_message("account-Åda", "Opened", {"price": "5 €"})
            (message,) = store.get_category_messages("account")

        assert (message.stream_name, message.data) == ("account-Åda", {"price": "5 €"})

    @pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
    def test_speaks_utf_8_whatever_the_database_does(self, server: Any, encoding: str) -> None:
        name = f"in_{encoding.lower()}"
        server.administer(
            f"create database {{}} template template0 encoding '{encoding}' locale 'C'", name
        )
        penstock.install(server.url(name))

        with penstock.connect(server.url(name)) as store:
            store.write_message("account-Åda", "Opened", {"owner": "Åda"})
            (message,) = store.get_category_messages("account")

        server.drop_database(name)
        assert (message.stream_name, message.data) == ("account-Åda", {"owner": "Åda"})

    def test_with_a_time_zone_that_the_server_does_not_know_is_refused_at_once(
        self, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("zoneinfo.ZoneInfo", str)  # as where Python knows more zones

        with pytest.raises(
            ValidationError, match=r"session_timezone must be .* the server accepts"
        ):
            penstock.connect(database_url, session_timezone="Mars/Olympus_Mons")

    @pytest.mark.parametrize("prepared", [True, False])
    def test_keeps_prepared_statements_only_if_asked_to(
        self, database_url: str, prepared: bool
    ) -> None:
        with penstock.connect(database_url, prepared_statements=prepared, pool_max_size=1) as store:
            for _ in range(8):
                store.write_message("account-1", "Opened")
                store.get_stream_messages("account-1")
                with store.transaction() as transaction:  # its statements count, too
                    transaction.savepoint("here")
                    transaction.release_savepoint("here")
            with store.transaction() as transaction:
                row = transaction.connection.execute(
                    "select count(*) > 0 from pg_prepared_statements"
                ).fetchone()

        assert row == (prepared,)

    @pytest.mark.parametrize(
        ("meanwhile", "then"),
        [  # as if this were a session where we have prepared nothing, or where others have
            ([b"deallocate all"], lambda store: store.write_message("account-1", "Opened")),
            (
                [b"prepare _pg3_%d as select 1" % number for number in range(9)],
                lambda store: store.stream_version("account-1"),
            ),
        ],
    )
    def test_says_what_to_do_behind_a_pooler_that_mixes_sessions(
        self, database_url: str, meanwhile: list[bytes], then: Callable[[Store], object]
    ) -> None:
        with penstock.connect(database_url, pool_max_size=1) as store:
            store.write_message("account-1", "Opened")
            with store.transaction() as transaction:
                connection = transaction.connection
            for one in meanwhile:
                connection.pgconn.exec_(one)  # behind psycopg's back

            with pytest.raises(PreparedStatementLost, match="prepared_statements=False"):
                then(store)

    def test_of_a_server_that_is_not_there_is_reported_clearly(self) -> None:
        with pytest.raises(DatabaseUnreachable) as caught:
            penstock.connect("postgresql://ada:hunter2@127.0.0.1:1/store")

        assert "127.0.0.1:1/store" in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert caught.value.retryable


@pytest.mark.parametrize("text", ["s3.region=x", '["0Secret0"]', '{"s3.secret-access-key": 1}'])
def test_options_of_the_lake_that_are_no_object_of_texts_are_refused_without_a_secret(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LAKE_OPTIONS", text)

    with pytest.raises(ValidationError) as caught:
        Settings.load()

    assert "0Secret0" not in str(caught.value)


class TestTheReplica:
    def test_has_what_its_address_leaves_out_from_the_primary(self) -> None:
        settings = Settings(
            database_url="postgresql://ada:secret@db1:6000/shop?sslmode=require",
            replica="postgresql://db2",
        )

        found = conninfo_to_dict(settings.of_replica().conninfo())

        assert (found["host"], found.get("port")) == ("db2", None)
        assert (found["user"], found["password"], found["dbname"], found["sslmode"]) == (
            *("ada", "secret", "shop"),
            "require",
        )

    def test_is_not_taken_from_the_environment_for_another_primary(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PENSTOCK_URL", "postgresql://db1/shop")
        monkeypatch.setenv("PENSTOCK_REPLICA_URL", "postgresql://db2/shop")

        assert Settings.load().replica == "postgresql://db2/shop"
        assert Settings.load("postgresql://elsewhere/shop").replica is None

    def test_does_not_show_its_password(self) -> None:
        settings = Settings(database_url=URL, replica="postgresql://ada:secret@db2/shop")

        assert "secret" not in repr(settings)
        with pytest.raises(ValidationError) as caught:
            Settings(database_url=URL, replica="http://ada:secret@db2/shop")
        assert caught.value.name == "replica"
        assert "secret" not in str(caught.value)

    def test_has_a_lag_in_seconds_or_as_a_timedelta(self) -> None:
        assert Settings(max_replica_lag=timedelta(minutes=1)).max_replica_lag == 60.0  # type: ignore[arg-type]

    @pytest.mark.parametrize("seconds", [-1, 3_601, True, "soon", float("nan"), timedelta(hours=2)])
    def test_has_a_lag_within_an_hour(self, seconds: object) -> None:
        with pytest.raises(ValidationError, match="max_replica_lag"):
            Settings(max_replica_lag=seconds)  # type: ignore[arg-type]
