"""Closing a live learner while something else happens: a signal, a call of another thread, a forked process."""

import atexit
import gc
import os
import signal
import threading
import time

import pytest
from live_batches import batch, cope, teach
from small_learners import same_state

from everlearn import open_live
from everlearn.live import LiveError, opening


def is_that_of_plain_learning(folder, batches):
    """Whether a folder holds the learner that observed so many batches, to the bit."""
    plain = cope()
    for number in range(batches):
        plain.observe(*batch(number))
    with open_live(folder) as live:
        same_state(live.learner.state_dict(), plain.state_dict())
        return live.position == batches


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs pthread_kill")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_handler_of_a_signal_that_closes_it_waits_until_the_change_is_applied(tmp_path, number):
    live = open_live(tmp_path / "live", cope())
    teach(live, [0], with_ids=False)
    count = live.learner.count

    def interrupted(samples):
        signal.pthread_kill(threading.main_thread().ident, number)
        count(samples)

    live.learner.count = interrupted  # called when what is replayed was drawn, and nothing is learnt yet
    handler = signal.signal(number, lambda *_: live.close())
    try:
        teach(live, [1], with_ids=False)
    finally:
        signal.signal(number, handler)
    with pytest.raises(LiveError, match="is closed"):
        teach(live, [2])
    assert is_that_of_plain_learning(tmp_path / "live", 2)


def test_closing_in_another_thread_waits_until_the_change_is_applied(tmp_path):
    live = open_live(tmp_path / "live", cope())
    teach(live, [0], with_ids=False)
    learn, closing = live._model._learn, threading.Thread(target=live.close)

    def slow(change):
        closing.start()
        while live._writer._thread.is_alive():
            time.sleep(0.001)
        time.sleep(0.05)  # without waiting, it begins to write its snapshot now
        return learn(change)

    live._model._learn = slow
    teach(live, [1], with_ids=False)
    closing.join()
    assert is_that_of_plain_learning(tmp_path / "live", 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_folder_can_be_opened_again_while_a_forked_process_goes_on(tmp_path):
    ended, end = os.pipe()
    live = open_live(tmp_path / "live", cope())
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(ended, 1)  # until the test is over
        os._exit(0)
    try:
        live.close()
        open_live(tmp_path / "live").close()
    finally:
        os.close(end)
        os.close(ended)
        os.waitpid(child, 0)


def test_a_program_that_opens_and_closes_folders_for_months_keeps_nothing_of_them(tmp_path):
    open_live(tmp_path / "live", cope()).close()
    before = atexit._ncallbacks()
    for _ in range(5):
        open_live(tmp_path / "live").close()
    gc.collect()
    assert (atexit._ncallbacks(), len(opening.OPENED)) == (before, 0)
