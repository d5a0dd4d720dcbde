use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;

fn ended(session: &Path, place: ChunkPlace) -> Holding {
    let (id, began, utc) = (ChunkId(0), EpochSeconds(0), TimeZone::UTC);
    let chunk = Chunk::create(id, began, session, place, &utc).unwrap();
    let name = FileName::parse(&wire::Text::from("chan_0")).unwrap();
    let created = chunk.create_file(&Pool::new(9), Path::new("ust/uid"), &name, &Arc::default());
    created.unwrap();
    chunk
        .end(EpochSeconds(1), Some(CloseCommand::Delete), &utc)
        .unwrap();
    chunk
}

#[test]
fn a_deleted_chunk_is_unlinked_by_another_thread_and_its_name_is_free_at_once() {
    for place in [ChunkPlace::Session, ChunkPlace::Dated] {
        let session = tempfile::tempdir().unwrap();
        let (go_on, wait) = channel::<()>();
        // Stands for a large deletion, which takes until the test ends it.
        deletion::enqueue(move || {
            let _ = wait.recv();
        });
        let holding = ended(session.path(), place.clone());
        let chunk = Arc::clone(holding.chunk());
        drop(holding);
        assert!(chunk.is_deleted() && !chunk.is_held());
        assert!(chunk.is_present(), "it is still being deleted");
        assert!(!chunk.with_path(Path::new("ust"), Path::exists));
        let again = ended(session.path(), place);
        assert!(again.with_path(Path::new("ust/uid/chan_0"), Path::exists));
        drop(go_on);
        assert!(deletion::finish(Duration::from_secs(60)));
        assert!(!chunk.is_present());
        drop(again);
        assert!(deletion::finish(Duration::from_secs(60)));
        assert_eq!(std::fs::read_dir(session.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_chunk_is_not_held_again_once_the_last_writer_has_let_go() {
    for _ in 0..500 {
        let session = tempfile::tempdir().unwrap();
        let holding = ended(session.path(), ChunkPlace::Session);
        let chunk = Arc::clone(holding.chunk());
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                drop(holding);
            });
            together.wait();
            while let Some(again) = Holding::of(Arc::clone(&chunk)) {
                assert!(!again.is_deleted(), "it is held and has been deleted");
            }
        });
    }
}
