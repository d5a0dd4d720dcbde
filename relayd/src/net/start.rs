//! The parts of a relay that are started before it serves anybody.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use daemon::checkup::listener::{Protocol, name_listener};
use daemon::endpoint::Endpoint;

use super::StartError;
use super::admission::ConnectionTable;
use super::listen::Listener;
use crate::archiver::{ArchiveStartError, ArchiverThread};
use crate::config::{ArchiveConfig, Config, KeepAlive};
use crate::fleet::FleetThreads;
use crate::limits::max_detached_sessions;
use crate::registry::RegistrySettings;
use crate::registry::archive_feed::ArchiveFeed;
use crate::store::pool::Pool;
use crate::store::sync::SyncThread;

/// Listens on an inherited socket if there is one, else on the endpoint. To be called on the
/// runtime that accepts.
pub(super) fn open_port(
    port: &'static str,
    keep_alive: Option<KeepAlive>,
    endpoint: &Endpoint,
    inherited: Option<TcpListener>,
    table: Arc<ConnectionTable>,
) -> Result<Listener, StartError> {
    let listener = match inherited {
        Some(inherited) => Listener::inherit(port, inherited, keep_alive, table),
        None => {
            let address = resolve(port, endpoint)?;
            let bound = Listener::bind(port, address, keep_alive, table);
            bound.map_err(|error| name_listener(error, Protocol::Tcp, address))
        }
    };
    listener.map_err(|source| StartError::Listen {
        port,
        endpoint: endpoint.clone(),
        source,
    })
}

pub(super) fn resolve(port: &'static str, endpoint: &Endpoint) -> Result<SocketAddr, StartError> {
    endpoint.resolve().map_err(|source| StartError::Endpoint {
        port,
        endpoint: endpoint.clone(),
        source,
    })
}

/// The archiver, the feed of streams to it, and the sessions of the archive for viewers.
type Archiving = (
    Option<ArchiverThread>,
    Option<Arc<ArchiveFeed>>,
    Option<FleetThreads>,
);

/// Starts what a relay has for its archive, if there is one.
pub(super) fn start_archiving(config: &Config) -> Result<Archiving, StartError> {
    let Some(ArchiveConfig {
        url,
        endpoint,
        times,
        listed_for,
        is_guaranteed,
    }) = &config.archive
    else {
        return Ok((None, None, None));
    };
    let store = archive::store::open(url, endpoint.as_deref())?;
    let feed = ArchiveFeed::new(*is_guaranteed).map_err(ArchiveStartError::from)?;
    let feed = Arc::new(feed);
    let archiver = ArchiverThread::start(Arc::clone(&store), *times, Arc::clone(&feed))?;
    let status = Arc::clone(archiver.status());
    let fleet = FleetThreads::start(store, status, &config.output, *listed_for);
    let fleet = fleet.map_err(StartError::Threads)?;
    Ok((Some(archiver), Some(feed), Some(fleet)))
}

pub(super) fn registry_settings(
    config: &Config,
    sync: Option<&SyncThread>,
    archive: Option<Arc<ArchiveFeed>>,
) -> RegistrySettings {
    RegistrySettings {
        archive,
        metadata_file: None,
        output: config.output.clone(),
        grouping: config.grouping,
        allows_clear: config.allows_clear,
        window: config.window,
        reorder_memory: config.reorder_memory,
        when_full: config.when_full,
        time_zone: config.time_zone.clone(),
        resume_timeout: config.resume_timeout,
        max_detached: max_detached_sessions(config.pool),
        pool: match sync {
            Some(sync) => Pool::with_syncer(config.pool, Arc::clone(sync.syncer())),
            None => Pool::new(config.pool),
        },
    }
}
