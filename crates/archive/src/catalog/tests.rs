use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::name::{BootId, DayObject, FORMAT, SessionKey, escape};
use crate::record::{BlockPlace, Encoding};
use crate::store::{Fault, FaultyStore, FormatError, Store, in_memory};

fn key(id: u64) -> SessionKey {
    SessionKey {
        producer: [id.to_be_bytes()[7]; 16],
        id,
    }
}

async fn list(store: &dyn Store, day: &str, name: &str, id: u64, is_end: bool) {
    let object = DayObject {
        day: day.to_owned(),
        host: escape(b"vm"),
        name: escape(name.as_bytes()),
        session: key(id),
        is_end,
    };
    let document = match is_end {
        true => r#"{"ended":2,"later":[]}"#.to_owned(),
        false => format!(
            r#"{{"session":"{}","host":"vm","name":"{name}","created":1}}"#,
            key(id)
        ),
    };
    let created = store.create(&object.to_string(), document.into()).await;
    created.unwrap();
}

#[tokio::test]
async fn sessions_are_found_by_day_host_and_name() {
    let store = in_memory();
    list(&*store, "2026-11-26", "app", 1, false).await;
    list(&*store, "2026-11-26", "app", 1, true).await;
    list(&*store, "2026-11-27", "app", 2, false).await;
    list(&*store, "2026-11-27", "a/b", 3, false).await;
    let foreign = Bytes::from_static(b"x");
    store
        .create("days/2026-11-27/vm/app/notes.txt", foreign)
        .await
        .unwrap();
    let find = async |names: Option<&str>, last: Option<&str>, likely: &[&str]| {
        let wanted = WantedSession {
            names: names.map(|name| ("vm".to_owned(), name.to_owned())),
            last_day: last.map(str::to_owned),
            ..WantedSession::default()
        };
        let likely: Vec<_> = likely.iter().map(|day| (*day).to_owned()).collect();
        let found = list_sessions(&*store, &wanted, &likely).await.unwrap();
        found
            .iter()
            .map(|found| found.session.id)
            .collect::<Vec<_>>()
    };
    for likely in [
        &[][..],
        &["2026-11-27"],
        &["2026-11-25", "2026-11-26", "2026-11-27"],
    ] {
        assert_eq!(find(None, None, likely).await, [1, 2, 3]);
        assert_eq!(find(Some("app"), None, likely).await, [1, 2]);
        assert_eq!(find(Some("a/b"), None, likely).await, [3]);
        assert_eq!(find(None, Some("2026-11-26"), likely).await, [1]);
        assert_eq!(find(Some("none"), None, likely).await, [0; 0]);
    }
    let found = list_sessions(&*store, &WantedSession::default(), &[])
        .await
        .unwrap();
    assert_eq!(found[2].name, "a/b");
    let (listed, failures) = read_listed(&*store, found).await;
    assert!(failures.is_empty());
    assert_eq!(listed[0].ended.as_ref().unwrap().ended, 2);
    assert_eq!(
        (listed[1].created.ctf_version, &listed[1].ended),
        (1, &None)
    );
}

#[tokio::test]
async fn a_session_with_a_foreign_or_huge_document_is_left_out_of_the_list() {
    let store = in_memory();
    list(&*store, "2026-11-27", "app", 1, false).await;
    let long = "n".repeat(5000);
    for (id, session, host) in [
        (2, key(1).to_string(), "vm"),
        (3, key(3).to_string(), &long),
    ] {
        let object = format!("days/2026-11-27/vm/app/{}", key(id));
        let document =
            format!(r#"{{"session":"{session}","host":"{host}","name":"app","created":1}}"#);
        store.create(&object, document.into()).await.unwrap();
    }
    let found = list_sessions(&*store, &WantedSession::default(), &[]).await;
    let (listed, failures) = read_listed(&*store, found.unwrap()).await;
    assert_eq!((listed.len(), failures.len()), (1, 2), "{failures:?}");
    assert_eq!(listed[0].found.session, key(1));
}

#[tokio::test]
async fn a_block_that_is_longer_than_what_is_in_it_is_not_fetched() {
    let store = FaultyStore::new(in_memory());
    let place = BlockPlace {
        offset: wire::Bytes(8),
        stored: u32::MAX,
        raw: 100,
        encoding: Encoding::Zstd,
        checksum: 0,
    };
    let read = read_run(&store, &Arc::from("log/x"), &[place]).await;
    let is_refused = matches!(read, Err(CatalogError::Object { .. }));
    assert!(is_refused && store.requests() == 0);
}

#[tokio::test]
async fn an_archive_of_another_version_is_refused() {
    let store = in_memory();
    let missing = check_format(&*store).await.unwrap_err();
    assert!(matches!(
        missing,
        CatalogError::Format(FormatError::Missing)
    ));
    let format = Bytes::from_static(br#"{"version":2}"#);
    store.create(FORMAT, format).await.unwrap();
    let newer = check_format(&*store).await.unwrap_err();
    assert!(
        matches!(newer, CatalogError::Format(FormatError::Version { .. })),
        "{newer}"
    );
}

#[tokio::test]
async fn what_is_no_object_is_reported_and_left_out() {
    let store = in_memory();
    let session = key(1);
    for (part, bytes) in [(0, &b""[..]), (1, b"short"), (2, &[7; 100])] {
        let name = session.prefix() + &format!("part-00000001-{part:08}");
        store
            .create(&name, Bytes::from_static(bytes))
            .await
            .unwrap();
    }
    let owner = session.prefix() + "own-00000001";
    store
        .create(&owner, Bytes::from_static(b"{}"))
        .await
        .unwrap();
    let opened = open_session(&*store, session).await.unwrap();
    assert_eq!((opened.failures.len(), opened.view.traces.len()), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again_and_a_refusal_is_not() {
    let store = Arc::new(FaultyStore::new(in_memory()));
    for request in 0..3 {
        store.fail(request, Fault::Lost);
    }
    assert!(open_session(&*store, key(1)).await.is_ok());
    assert_eq!(store.requests(), 4);
    store.fail(4, Fault::Refused);
    let refused = open_session(&*store, key(1)).await.unwrap_err();
    assert!(refused.is_of_store());
    store.set_down(true);
    assert!(
        open_session(&*store, key(1))
            .await
            .unwrap_err()
            .is_of_store()
    );
    assert_eq!(store.requests(), 5 + 5);
}

#[tokio::test]
async fn an_object_that_is_damaged_is_named_and_the_others_are_verified() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().display());
    let store = crate::store::open(&url, None).unwrap();
    list(&*store, "2026-11-27", "app", 1, false).await;
    let format = Bytes::from_static(b"{\"version\":1}");
    store.create(FORMAT, format).await.unwrap();
    let commits = [BootId([1; 16]).commit(0), BootId([1; 16]).commit(1)];
    let object = include_bytes!("../object/data/commit-v1.bin");
    for name in &commits {
        store
            .create(name, Bytes::from_static(object))
            .await
            .unwrap();
    }
    store.create("log/notes", "x".into()).await.unwrap();
    let verified = verify(&*store, |_, objects| assert_eq!(objects, 4)).await;
    let verified = verified.unwrap();
    assert_eq!((verified.objects, verified.packets), (4, 4));
    assert_eq!((verified.faults, verified.foreign), (0, 1));
    // A byte of the packets.
    crate::test_support::corrupt_object(directory.path(), &commits[1], 60);
    let verified = verify(&*store, |_, _| {}).await.unwrap();
    assert_eq!((verified.faults, verified.packets), (1, 2));
    let fault = with_source(&verified.first_faults[0]);
    assert_eq!(
        fault,
        format!("object {}: a block does not have its checksum", commits[1])
    );
}

fn with_source(error: &dyn std::error::Error) -> String {
    let source = error.source().map(ToString::to_string);
    format!("{error}: {}", source.unwrap_or_default())
}
