//! A beat for clients that write in tiny pieces.
//!
//! To be woken for each piece costs more than everything else that is done with it. So such a client
//! is not waited for: it is read from on the beat, and what has come in the meantime is taken at once.
//! One timer beats for all of them, and only while there are some.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::limits::POLL_INTERVAL;
use super::watch::watch;

/// The beat.
#[derive(Debug, Default)]
pub(super) struct Beat {
    listeners: AtomicUsize,
    first: Notify,
    beat: Notify,
}

/// Somebody who goes by the beat, until it is dropped.
#[derive(Debug)]
pub(super) struct Listener<'a>(&'a Beat);

impl Beat {
    /// Goes by the beat from now on.
    pub(super) fn listen(&self) -> Listener<'_> {
        if self.listeners.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first.notify_one();
        }
        Listener(self)
    }

    /// Beats until it is dropped, finer than the runtime's own timers do.
    pub(super) async fn run(&self) -> io::Result<()> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let timer = watch(timer)?;
        let set = |interval: Timespec| {
            let spec = Itimerspec {
                it_interval: interval,
                it_value: interval,
            };
            timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &spec)
        };
        loop {
            self.first.notified().await;
            set(beat())?;
            while self.listeners.load(Ordering::Relaxed) > 0 {
                let mut ready = timer.readable().await?;
                let mut beats = [0; 8];
                let read = |timer: &AsyncFd<_>| Ok(rustix::io::read(timer.get_ref(), &mut beats)?);
                if ready.try_io(read).is_ok() {
                    self.beat.notify_waiters();
                }
            }
            set(Timespec::default())?;
        }
    }
}

fn beat() -> Timespec {
    // A beat is shorter than a second.
    Timespec {
        tv_sec: 0,
        tv_nsec: POLL_INTERVAL.subsec_nanos().into(),
    }
}

impl Listener<'_> {
    /// Waits for so many beats; for none, it lets others have their turn.
    pub(super) async fn beats(&self, count: u32) {
        if count == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..count {
            self.0.beat.notified().await;
        }
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}
