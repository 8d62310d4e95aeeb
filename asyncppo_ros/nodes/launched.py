"""How launches end, by Ctrl-C and with their processes; imported by launch files alone."""

import signal

from launch.actions import EmitEvent, OpaqueFunction, RegisterEventHandler
from launch.event_handlers import OnProcessStart
from launch.events import matches_action, Shutdown
from launch.events.process import ProcessExited, SignalProcess

from launch import Action, LaunchContext

# A Ctrl-C that comes while `env` is loaded, which is to hold it back, ends the process.
ENDED_WELL = (0, -signal.SIGINT)


def told_late(process: Action) -> RegisterEventHandler:
    """Pass a Ctrl-C on to a process that launch started after it: the terminal told it nothing."""
    return RegisterEventHandler(OnProcessStart(
        target_action=process, on_start=lambda _event, context: [EmitEvent(event=SignalProcess(
            signal_number=signal.SIGINT, process_matcher=matches_action(process)))]
        if context.is_shutdown else []))


def ended(what: str, event: ProcessExited, context: LaunchContext) -> list:
    """End the launch with one of its processes, and with exit code 1 where that failed."""
    if event.returncode not in ENDED_WELL:
        return failed(what, event.returncode)
    return [] if context.is_shutdown else [EmitEvent(event=Shutdown(
        reason=f'{what} has ended'))]


def failed(what: str, code: int) -> list:
    """
    End the launch with exit code 1.

    A Shutdown event alone ends it with 0; an exception ends it, in one line, with 1.
    """
    def fail(_context: LaunchContext) -> list:
        raise RuntimeError(f'{what} ended with exit code {code}; its message is above')
    return [OpaqueFunction(function=fail)]
