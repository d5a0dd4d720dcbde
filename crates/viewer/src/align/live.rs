//! The alignment of traces of relays and archives: their sessions of samples are read beside the
//! events, on a thread of their own.
//!
//! What is there is read first, so that the clocks are known before the first event is shown. More
//! samples change only times that have not been shown.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ctf::directory::TraceDirectory;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use viewer_proto::session::Seek;

use super::Alignment;
use super::samples::Samples;
use crate::attach::archive::{ArchiveOptions, ArchiveSource, CorrectionsOf};
use crate::attach::relay::{self, Missing, RelayOptions};
use crate::attach::target::{SessionName, Target};
use crate::attach::{SourceEvent, SourceHandle};
use crate::mux::Mux;

/// The name of the sessions in which `consumer` writes samples.
const SESSION: &str = "clock";
/// Largest number of samples that are kept while more come: all are looked at when some have come.
/// It is a day of them of 90 hosts.
const MAX_SAMPLES: usize = 1 << 18;
/// Longest time for which the events wait for the samples that relays have.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest time between two alignments, which take time to be made.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
const EVENT_CAPACITY: usize = 64;

/// Reads samples until it is dropped.
pub struct SampleSources {
    pub(super) latest: LatestAlignment,
    /// Dropping them ends the thread.
    _sources: Vec<SourceHandle>,
}

/// What is known by now of the clocks.
#[derive(Debug, Clone)]
pub(super) struct LatestAlignment {
    pub(super) receiver: watch::Receiver<Arc<Alignment>>,
    pub(super) known: Arc<Alignment>,
}

impl SampleSources {
    /// Reads the samples of relays and archives, and those of directories that are complete.
    /// Returns when all that are there have been read; or, if relays take too long, with true, when
    /// those of all others have.
    ///
    /// # Errors
    /// If the system does not allow another thread.
    pub fn open(targets: &[Target], complete: &[TraceDirectory]) -> io::Result<(Self, bool)> {
        let mut samples = Samples::of_traces(complete);
        let targets = sample_targets(targets);
        read_archives(&targets, &mut samples)?;
        samples.max = MAX_SAMPLES;
        let (sender, events) = mpsc::channel(EVENT_CAPACITY);
        // No sample waits for those of other hosts.
        let (_, is_held_back) = watch::channel(false);
        let mut sources = Vec::new();
        for target in targets {
            if let Target::Relay(relay) = target {
                let (sender, is_held_back) = (sender.clone(), is_held_back.clone());
                sources.push(relay::spawn(relay, relay_options(), sender, is_held_back)?);
            }
        }
        drop(sender);
        let (publisher, receiver) = watch::channel(Arc::new(Alignment::default()));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let reader = SampleReader {
            waiting: sources.len(),
            samples,
            publisher,
        };
        let runtime = Builder::new_current_thread().enable_time().build()?;
        thread::Builder::new()
            .name("samples".to_owned())
            .spawn(move || runtime.block_on(reader.run(events, &ready)))?;
        // The thread ends by a panic only, which it has reported.
        let is_late = is_ready.recv().unwrap_or(true);
        let known = Arc::clone(&receiver.borrow());
        let latest = LatestAlignment { receiver, known };
        let sources = Self {
            latest,
            _sources: sources,
        };
        Ok((sources, is_late))
    }

    /// Corrects the times of traces by what is known now.
    #[must_use]
    pub fn corrections(&self) -> Arc<CorrectionsOf> {
        let alignment = Arc::clone(&self.latest.known);
        Arc::new(move |trace| alignment.corrections(trace))
    }

    /// What was known of the clocks when the samples that were there had been read.
    #[must_use]
    pub fn alignment(&self) -> &Alignment {
        &self.latest.known
    }
}

impl LatestAlignment {
    /// Takes over what has become known. Returns whether there was anything.
    pub(super) fn refresh(&mut self) -> bool {
        let latest = Arc::clone(&self.receiver.borrow());
        let is_new = !Arc::ptr_eq(&latest, &self.known);
        self.known = latest;
        is_new
    }
}

/// The sessions of samples of the same relays and archives, and of the same hosts.
fn sample_targets(targets: &[Target]) -> Vec<Target> {
    let samples_of = |session: &Option<SessionName>| {
        Some(SessionName {
            host: session.as_ref().and_then(|session| session.host.clone()),
            name: SESSION.to_owned(),
        })
    };
    let mut found = Vec::new();
    for mut target in targets.iter().cloned() {
        match &mut target {
            Target::Relay(relay) => relay.session = samples_of(&relay.session),
            Target::Archive(archive) => archive.session = samples_of(&archive.session),
            Target::Directory(_) => continue,
        }
        if !found.contains(&target) {
            found.push(target);
        }
    }
    found
}

/// Reads all samples of archives. What is wrong with an archive is reported by those who show its
/// events.
fn read_archives(targets: &[Target], samples: &mut Samples) -> io::Result<()> {
    let (sender, mut events) = mpsc::channel(EVENT_CAPACITY);
    let (_, is_held_back) = watch::channel(false);
    let mut sources = Vec::new();
    for target in targets {
        if let Target::Archive(archive) = target
            && let Ok(archive) = ArchiveSource::open(archive.clone())
        {
            let options = ArchiveOptions {
                may_be_missing: true,
                ..ArchiveOptions::default()
            };
            sources.push(archive.spawn(options, sender.clone(), is_held_back.clone())?);
        }
    }
    drop(sender);
    let mut mux = sample_mux();
    while let Some(event) = events.blocking_recv() {
        show_samples(&mut mux, event, samples);
    }
    Ok(())
}

/// A mux that shows each sample when it comes.
fn sample_mux() -> Mux {
    let mut mux = Mux::new();
    mux.set_unordered();
    mux
}

fn show_samples(mux: &mut Mux, event: SourceEvent, samples: &mut Samples) {
    // Neither can fail: this stage does not. What is for users is reported by those who show the
    // events of the same targets.
    let _ = mux.handle(event, samples);
    let _ = mux.run(samples, &|| false);
}

fn relay_options() -> RelayOptions {
    RelayOptions {
        seek: Seek::Beginning,
        missing: Missing::Wait,
        follow: true,
        retry: true,
        reconnect_timeout: None,
        reports_catch_up: true,
        ..RelayOptions::default()
    }
}

struct SampleReader {
    /// The number of relays that have not handed over all that they had at first.
    waiting: usize,
    samples: Samples,
    publisher: watch::Sender<Arc<Alignment>>,
}

impl SampleReader {
    /// Reads samples until all sources have ended. Sends to `ready`, once, when an alignment has
    /// been made of what there was, with true if it was too late to wait for all.
    async fn run(
        mut self,
        mut events: mpsc::Receiver<SourceEvent>,
        ready: &std::sync::mpsc::Sender<bool>,
    ) {
        let mut mux = sample_mux();
        let catch_up = Instant::now() + CATCH_UP_TIMEOUT;
        while self.waiting > 0 {
            match timeout_at(catch_up, events.recv()).await {
                Ok(Some(event)) => self.handle(&mut mux, event),
                Ok(None) => self.waiting = 0,
                Err(_) => break,
            }
        }
        self.publish();
        // An error means that nobody waits any more.
        let _ = ready.send(self.waiting > 0);
        let mut due = Instant::now() + PUBLISH_INTERVAL;
        loop {
            // Until its first sample is known, a host is unaligned.
            if self.samples.are_first {
                self.publish();
            }
            let event = match self.samples.are_new {
                true => timeout_at(due, events.recv()).await,
                false => Ok(events.recv().await),
            };
            match event {
                Ok(Some(event)) => self.handle(&mut mux, event),
                Ok(None) => break,
                Err(_) => {
                    self.publish();
                    due = Instant::now() + PUBLISH_INTERVAL;
                }
            }
        }
        self.publish();
    }

    fn handle(&mut self, mux: &mut Mux, event: SourceEvent) {
        // A relay that is lost meanwhile counts twice, which only makes the wait shorter.
        if let SourceEvent::CaughtUp | SourceEvent::Failed(_) = &event {
            self.waiting = self.waiting.saturating_sub(1);
        }
        show_samples(mux, event, &mut self.samples);
    }

    fn publish(&mut self) {
        self.samples.are_first = false;
        if std::mem::take(&mut self.samples.are_new) {
            let reference = self.publisher.borrow().reference.clone();
            let alignment = Alignment::new(&self.samples, reference);
            self.publisher.send_replace(Arc::new(alignment));
        }
    }
}
