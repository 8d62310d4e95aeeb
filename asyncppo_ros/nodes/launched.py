"""What every launch file needs so that a Ctrl-C ends it well; imported by launch files alone."""

import signal

from launch.actions import EmitEvent, RegisterEventHandler
from launch.event_handlers import OnProcessStart
from launch.events import matches_action
from launch.events.process import SignalProcess

from launch import Action

# A Ctrl-C that comes while `env` is loaded, which is to hold it back, ends the process.
ENDED_WELL = (0, -signal.SIGINT)


def told_late(process: Action) -> RegisterEventHandler:
    """Pass a Ctrl-C on to a process that launch started after it: the terminal told it nothing."""
    return RegisterEventHandler(OnProcessStart(
        target_action=process, on_start=lambda _event, context: [EmitEvent(event=SignalProcess(
            signal_number=signal.SIGINT, process_matcher=matches_action(process)))]
        if context.is_shutdown else []))
