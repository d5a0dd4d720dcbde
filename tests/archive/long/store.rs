//! Where the archive of a long test is.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use archive::store::{Store, open, open_with_keys};
use fastrand::Rng;
use tests::ceph::{self, Ceph};

/// Longest time in seconds for which a daemon of Ceph that was killed is away.
const MAX_DOWNTIME: u64 = 10;

/// The archive.
pub(super) enum Place {
    Directory(PathBuf),
    /// With what is wrong with it, and until when.
    Ceph(Box<Ceph>, Option<(StoreFault, Instant)>),
}

/// A daemon of the store that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreFault {
    Osd(usize),
    Gateway,
}

impl Place {
    /// An archive in a directory.
    pub(super) fn directory(parent: &Path) -> Self {
        let directory = parent.join("archive");
        fs::create_dir(&directory).unwrap();
        Self::Directory(directory)
    }

    /// An archive in a bucket of Ceph, whose gateway has this address.
    pub(super) fn ceph(parent: &Path, gateway: Ipv4Addr) -> Self {
        Self::Ceph(Box::new(Ceph::start_in(parent, gateway)), None)
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Directory(directory) => format!("file://{}", directory.display()),
            Self::Ceph(..) => format!("s3://{}", ceph::BUCKET),
        }
    }

    /// Tells a program of this project how the archive is reached.
    pub(super) fn configure<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self {
            Self::Directory(_) => command,
            Self::Ceph(ceph, _) => ceph.configure(command),
        }
    }

    pub(super) fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Directory(_) => open(&self.url(), None).unwrap(),
            Self::Ceph(ceph, _) => {
                open_with_keys(ceph::BUCKET, &ceph.endpoint(), ceph::KEYS).unwrap()
            }
        }
    }

    /// Whether daemons of it can be killed.
    pub(super) fn has_daemons(&self) -> bool {
        matches!(self, Self::Ceph(..))
    }

    /// Kills a daemon, unless another one is away or has not all objects: two OSDs are needed to
    /// write. Returns which one, and for how long.
    pub(super) fn inject(&mut self, random: &mut Rng) -> Option<(StoreFault, Duration)> {
        let Self::Ceph(ceph, fault @ None) = self else {
            return None;
        };
        let injected = match random.bool() {
            true => StoreFault::Gateway,
            false if ceph.is_clean() => StoreFault::Osd(random.usize(..ceph::OSDS)),
            false => return None,
        };
        match injected {
            StoreFault::Osd(number) => ceph.kill_osd(number),
            StoreFault::Gateway => ceph.kill_gateway(),
        }
        let time = Duration::from_millis(random.u64(0..=MAX_DOWNTIME * 1000));
        *fault = Some((injected, Instant::now() + time));
        Some((injected, time))
    }

    /// Starts the daemon that was killed, if it is time or all are to run.
    pub(super) fn recover(&mut self, all: bool) {
        let Self::Ceph(ceph, fault) = self else {
            return;
        };
        match fault.take_if(|(_, until)| all || Instant::now() >= *until) {
            Some((StoreFault::Osd(number), _)) => ceph.start_osd(number),
            Some((StoreFault::Gateway, _)) => ceph.start_gateway(),
            None => {}
        }
        if all {
            ceph.wait_until_clean();
        }
    }
}
