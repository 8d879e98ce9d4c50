"""The folder for uploads: its room, its deletion, and that of folders that killed services left."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing

import pytest

from pipeline.errors import ServiceError
from pipeline.server.service import Service
from pipeline.server.settings import Settings
from pipeline.server.spool import Spool


def test_a_voice_that_cannot_be_deleted_where_no_file_can_be_opened_is_deleted_with_the_next(store):
    resource = pytest.importorskip("resource")

    async def test(service):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            async with service.private_folder() as first:
                (first / "voice").write_bytes(b"voice")
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert first.exists()
        async with service.private_folder() as second:
            assert second.exists()
        assert not first.exists() and not second.exists()

    with closing(Service(Settings(store), threads=1)) as service:
        asyncio.run(test(service))


def test_a_spool_leaves_room_and_those_of_services_that_live_and_deletes_itself_and_the_others(tmp_path):
    one = Spool(tmp_path, 2**60)
    assert 0 < one.bytes <= shutil.disk_usage(tmp_path).free / 2 + 2**28  # others write, too
    upload = one.private_folder() / "upload"
    upload.touch()
    two = Spool(tmp_path, 5)
    assert upload.exists() and two.bytes == 5
    one._lock.release()  # as where its service was killed
    three = Spool(tmp_path, 5)
    assert set(tmp_path.iterdir()) == {two.folder, three.folder}
    for each in (two, three):
        each.close()
    assert not list(tmp_path.iterdir())


def test_a_place_that_holds_no_spool_is_an_error_in_one_line(tmp_path):
    with pytest.raises(ServiceError, match="no folder for uploads can be made here: No such file"):
        Spool(tmp_path / "none", 5)
