//! Shows the events of all sources in the order of their times.

use std::collections::HashSet;
use std::time::Instant;

use daemon::output::print_message;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::timeout_at;
use viewer::align::HostAlignment;
use viewer::align::aligner::Aligner;
use viewer::attach::SourceEvent;
use viewer::mux::{Mux, Progress, Report, Stage};
use viewer::run::Stop;
use viewer::select::Select;
use viewer::sink::{Next, SinkError};
use viewer::turn::{NewcomerHold, Turn};

/// The channels between the main thread and the sources.
pub(super) struct SourceChannels {
    pub(super) source_events: Receiver<SourceEvent>,
    /// Whether events are held back until the watermarks of the sources have passed them.
    pub(super) held_back: watch::Sender<bool>,
}

/// The events of all sources, in the order of their times, and what they are shown to.
pub(super) struct Merge<'a> {
    pub(super) mux: &'a mut Mux,
    pub(super) select: &'a mut Select,
    /// Absent if times are shown as they are.
    pub(super) aligner: Option<Aligner>,
    /// The hosts that users know of, and whether they are aligned.
    pub(super) hosts: HashSet<(String, bool)>,
    pub(super) quiet: bool,
}

impl Merge<'_> {
    /// Handles what the sources report and shows events until all sources have ended.
    pub(super) fn show_events(
        &mut self,
        SourceChannels {
            mut source_events,
            held_back,
        }: SourceChannels,
        stop: &Stop,
    ) -> Result<(), SinkError> {
        // With `--limit 0`, no event has to be waited for.
        if self.select.is_limit_reached() {
            return Ok(());
        }
        // The channel has no blocking receive with a timeout: a runtime has to measure it.
        let timer = Builder::new_current_thread().enable_time().build()?;
        let mut newcomer_hold = NewcomerHold::default();
        loop {
            let turn = Turn::begin();
            while let Some(event) = turn.next_event(&mut source_events) {
                self.handle_event(event)?;
            }
            self.refresh_alignment(false);
            match self.mux.run(self.select, &|| stop.is_requested())? {
                Progress::Enough => return Ok(()),
                Progress::Waiting | Progress::Ended => {}
            }
            let flush_deadline = match self.select.flush()? {
                Next::Event => None,
                Next::FlushAt(deadline) => Some(deadline),
                Next::Finish => return Ok(()),
            };
            if newcomer_hold.is_over(self.mux.is_held_by_newcomers(), Instant::now()) {
                // What waited for these streams can be shown in the next turn.
                self.mux.release_newcomers();
                continue;
            }
            let holds_back = self.mux.holds_back();
            // Most turns change nothing, and only a change shall wake the sources.
            held_back.send_if_modified(|known| std::mem::replace(known, holds_back) != holds_back);
            if stop.is_requested() {
                return Ok(());
            }
            // The channel ends when all sources have.
            let hold_deadline = self.aligner.as_ref().and_then(Aligner::deadline);
            let deadlines = [newcomer_hold.deadline(), flush_deadline, hold_deadline];
            let deadline = deadlines.into_iter().flatten().min();
            match receive_until(&timer, &mut source_events, deadline) {
                Received::Event(event) => self.handle_event(event)?,
                Received::Nothing => {}
                Received::End => {
                    self.refresh_alignment(true);
                    self.mux.run(self.select, &|| stop.is_requested())?;
                    return Ok(());
                }
            }
        }
    }

    fn handle_event(&mut self, event: SourceEvent) -> Result<(), SinkError> {
        let (metadata_of, newcomer) = (event.metadata_of(), event.newcomer());
        match self.mux.handle(event, self.select)? {
            None => {}
            Some(Report::Notice(notice)) if self.quiet => tracing::info!("{notice}"),
            Some(Report::Notice(notice)) => {
                print_message(format_args!("test-live: {notice}"));
            }
            Some(Report::Missing(what)) => self.select.report_missing(&what),
            Some(Report::Failed(what)) => self.select.report_failure(&what),
        }
        if let (Some(aligner), Some(trace)) = (&mut self.aligner, metadata_of)
            && let Some(aligned) = aligner.add_metadata(trace, self.mux)
        {
            self.report_host(aligned.host);
        }
        if let (Some(aligner), Some((stream, trace))) = (&mut self.aligner, newcomer) {
            aligner.hold_newcomer(stream, trace, self.mux);
        }
        Ok(())
    }

    /// Takes over samples that have come. None come after the end.
    fn refresh_alignment(&mut self, is_end: bool) {
        if let Some(aligner) = &mut self.aligner {
            let changed = aligner.refresh([&mut *self.mux]);
            aligner.release_newcomers(self.mux, is_end);
            for aligned in changed {
                self.report_host(aligned.host);
            }
        }
    }

    /// Tells users how a host is aligned, once, and once that a trace of it is unaligned.
    fn report_host(&mut self, host: HostAlignment) {
        let (text, is_aligned) = (host.to_string(), host.offset.is_some());
        if self.hosts.insert((host.host, is_aligned)) && !self.quiet {
            print_message(format_args!("test-live: {text}"));
        }
    }
}

/// What a wait for the sources has brought.
enum Received {
    Event(SourceEvent),
    /// Nothing until the deadline.
    Nothing,
    /// All sources have ended.
    End,
}

fn receive_until(
    timer: &Runtime,
    source_events: &mut Receiver<SourceEvent>,
    deadline: Option<Instant>,
) -> Received {
    let received = match deadline {
        None => source_events.blocking_recv(),
        Some(deadline) => {
            let receive = async { timeout_at(deadline.into(), source_events.recv()).await };
            match timer.block_on(receive) {
                Ok(received) => received,
                Err(_) => return Received::Nothing,
            }
        }
    };
    received.map_or(Received::End, Received::Event)
}
