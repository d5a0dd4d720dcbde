//! One traced process: its directory, its `meta`, its rings, and whether it lives.

use std::collections::BTreeMap;
use std::io;

use thiserror::Error;
use trace_ring_core::format::{META_FILE, ring_file_name};
use tracing::{debug, warn};

use super::directory::{Access, DirectoryName, ProcessDirectory, RefusedFile, RunDirectory};
use super::meta_reader::{MetaFault, MetaReader};
use super::ring_reader::{RingFault, RingReader, Role};
use super::user_budget::{ProcessBudget, UserBudgets};
use crate::limits::MAX_RINGS_OF_PROCESS;

/// A process directory is not used.
#[derive(Debug, Error)]
pub enum ProducerFault {
    /// A file or the directory is not what it must be.
    #[error(transparent)]
    File(#[from] RefusedFile),
    /// `meta` cannot be used.
    #[error(transparent)]
    Meta(#[from] MetaFault),
}

/// A ring of a process.
#[derive(Debug)]
pub enum ProducerRing {
    /// The ring is read.
    Open(RingReader),
    /// The ring is not read any more: it is broken, or its thread has ended and everything is
    /// taken.
    Closed,
}

/// A traced process, dead or alive.
#[derive(Debug)]
pub struct Producer {
    directory: ProcessDirectory,
    meta: MetaReader,
    budget: ProcessBudget,
    role: Role,
    rings: BTreeMap<u32, ProducerRing>,
    /// The numbers of the ring files when they were last listed.
    listed: Vec<u32>,
    is_dead: bool,
    is_frozen: bool,
    /// Whether it was logged that the process has too many classes.
    is_full_reported: bool,
}

impl Producer {
    /// Opens the directory of a process, and its `meta`. Its classes and rings are taken from the
    /// budget of its user.
    ///
    /// # Errors
    /// If either is not what it must be.
    pub fn open(
        run: &RunDirectory,
        name: &DirectoryName,
        role: Role,
        budgets: &UserBudgets,
    ) -> Result<Self, ProducerFault> {
        let mut producer = Self::open_without_classes(run, name, role, budgets)?;
        producer.meta.update(&mut producer.budget)?;
        producer.report_full();
        Ok(producer)
    }

    /// Opens the directory of a process and its `meta` without the classes, for those who show no
    /// events.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_without_classes(
        run: &RunDirectory,
        name: &DirectoryName,
        role: Role,
        budgets: &UserBudgets,
    ) -> Result<Self, ProducerFault> {
        let directory = run.open_process(name)?;
        let (meta, _) = directory.open_file(META_FILE, role.access())?;
        Ok(Self {
            budget: budgets.of_process(directory.uid()),
            directory,
            meta: MetaReader::open_header(meta)?,
            role,
            rings: BTreeMap::new(),
            listed: Vec::new(),
            is_dead: false,
            is_frozen: false,
            is_full_reported: false,
        })
    }

    /// Returns the directory of the process, which is open.
    #[must_use]
    pub fn directory(&self) -> &ProcessDirectory {
        &self.directory
    }

    /// Returns the reader of `meta`.
    pub fn meta(&mut self) -> &mut MetaReader {
        &mut self.meta
    }

    /// Reads the classes that the process has added to `meta`.
    ///
    /// # Errors
    /// If `meta` cannot be used any more.
    pub fn update_meta(&mut self) -> Result<(), MetaFault> {
        let updated = self.meta.update(&mut self.budget);
        self.report_full();
        updated
    }

    fn report_full(&mut self) {
        if self.meta.is_full() && !std::mem::replace(&mut self.is_full_reported, true) {
            let (process, uid) = (self.directory.name().as_str(), self.directory.uid());
            warn!(
                process,
                uid,
                "further event classes are not read: the programs of the user have too many; their events are \
                 counted as discarded"
            );
        }
    }

    /// Returns the rings by their numbers.
    pub fn rings(&mut self) -> &mut BTreeMap<u32, ProducerRing> {
        &mut self.rings
    }

    /// Returns the ring of this number, if there is one.
    #[must_use]
    pub fn ring(&self, number: u32) -> Option<&ProducerRing> {
        self.rings.get(&number)
    }

    /// Returns the name of the process: of its program, or as the kernel has it.
    #[must_use]
    pub fn name(&self) -> String {
        let header = self.meta.header();
        let program = header.program.rsplit(|byte| *byte == b'/').next();
        let program = program.filter(|name| !name.is_empty());
        let name = program.unwrap_or_else(|| until_nul(&header.process_name));
        String::from_utf8_lossy(name).into_owned()
    }

    /// Whether the process has died. It does not come back to life.
    ///
    /// # Errors
    /// If the file system has no locks.
    pub fn check_death(&mut self) -> io::Result<bool> {
        if !self.is_dead {
            let meta = self.meta.file();
            self.is_dead = match self.role {
                Role::Drainer => file_lock::try_lock_exclusive(meta)?,
                // Shared, and given back at once: it must not keep a drainer from the exclusive
                // one.
                Role::Observer => file_lock::try_lock_shared(meta)?,
            };
            if self.is_dead && self.role == Role::Observer {
                file_lock::unlock(meta)?;
            }
        }
        Ok(self.is_dead)
    }

    /// Opens the rings that are new, and reads the control words of all.
    pub fn update(&mut self) {
        if self.is_frozen {
            return;
        }
        match self.directory.ring_numbers() {
            Ok(numbers) => self.open_rings(numbers),
            Err(error) => {
                debug!(process = self.directory.name().as_str(), %error, "rings not listed")
            }
        }
        let mut broken = Vec::new();
        for (number, ring) in &mut self.rings {
            if let ProducerRing::Open(reader) = ring
                && let Err(fault) = reader.update()
            {
                broken.push((*number, fault));
            }
        }
        for (number, fault) in broken {
            self.close_broken(number, &fault);
        }
    }

    fn open_rings(&mut self, numbers: Vec<u32>) {
        // A producer removes rings that were released: their numbers do not come back.
        self.rings.retain(|number, ring| {
            matches!(ring, ProducerRing::Open(_)) || numbers.contains(number)
        });
        let open = |ring: &&ProducerRing| matches!(ring, ProducerRing::Open(_));
        let mut used = self.rings.values().filter(open).count();
        for number in &numbers {
            if self.rings.contains_key(number) {
                continue;
            }
            if used >= MAX_RINGS_OF_PROCESS || !self.budget.take_ring() {
                if !self.listed.contains(number) {
                    let process = self.directory.name().as_str();
                    warn!(
                        process,
                        ring = number,
                        "ring not read: the process or its user has too many"
                    );
                }
                continue;
            }
            used += 1;
            let ring = match self.open_ring(*number) {
                Ok(ring) => ProducerRing::Open(ring),
                Err(fault) => {
                    report_broken(&self.directory, *number, &fault);
                    // A user could otherwise use up its budget with files that are no rings.
                    self.budget.give_ring_back();
                    ProducerRing::Closed
                }
            };
            self.rings.insert(*number, ring);
        }
        self.listed = numbers;
    }

    fn open_ring(&self, number: u32) -> Result<RingReader, RingFault> {
        let name = ring_file_name(number);
        let opened = self.directory.open_file(&name, self.role.access());
        let (file, stat) = opened.map_err(|refused| match refused {
            RefusedFile::System(error) => RingFault::Read(error),
            refused => RingFault::Read(io::Error::other(refused)),
        })?;
        RingReader::open(
            file,
            u64::try_from(stat.st_size).unwrap_or(0),
            number,
            self.role,
        )
    }

    /// Closes a ring that cannot be read any further.
    pub fn close_broken(&mut self, number: u32, fault: &RingFault) {
        report_broken(&self.directory, number, fault);
        self.close_ring(number);
    }

    /// Closes a ring from which everything is taken.
    pub fn close_ring(&mut self, number: u32) {
        if let Some(ProducerRing::Open(_)) = self.rings.insert(number, ProducerRing::Closed) {
            self.budget.give_ring_back();
        }
    }

    /// Lets the process write over what an observer has read of a ring.
    ///
    /// # Errors
    /// If the ring cannot be written to.
    pub fn free_space(&self, number: u32) -> Result<(), RefusedFile> {
        let (file, _) = self
            .directory
            .open_file(&ring_file_name(number), Access::ReadWrite)?;
        if let Some(ProducerRing::Open(reader)) = self.rings.get(&number) {
            reader.free_space(&file)?;
        }
        Ok(())
    }

    /// Ends the updates: what the process writes later is not read.
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// Removes what the process has left. `meta` is the last file: without it nobody would own the
    /// others.
    ///
    /// # Errors
    /// If a file cannot be removed, or the process has made directories.
    pub fn remove(&self, run: &RunDirectory) -> io::Result<()> {
        self.directory.remove_all_files(META_FILE)?;
        self.directory.remove_file(META_FILE)?;
        run.remove_process(self.directory.name())
    }
}

impl Role {
    /// Returns how files are opened: a drainer writes its own words.
    fn access(self) -> Access {
        match self {
            Self::Drainer => Access::ReadWrite,
            Self::Observer => Access::Read,
        }
    }
}

fn report_broken(directory: &ProcessDirectory, number: u32, fault: &RingFault) {
    let process = directory.name().as_str();
    warn!(
        process,
        ring = number,
        "ring not read any further: {fault}; its other events are lost"
    );
}

/// Returns the bytes before the first NUL.
#[must_use]
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
