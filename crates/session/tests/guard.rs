//! A panic ends the session and nothing else. The test has its own process, because a panic ends all sessions of a
//! process.

use nthbyte_profile::Method;
use nthbyte_profile::event::LostKind;
use nthbyte_session::{Config, Host, Session, guarded};

struct Plain;

impl Host for Plain {}

fn start(path: &std::path::Path) -> Session {
    let json =
        serde_json::json!({"output": path, "period": 512, "distances": "exponential"}).to_string();
    let config = Config::parse(&json).unwrap();
    let meta = config.meta(Method::NurseryLimit, 1, Vec::new());
    Session::start(&config, meta, &Plain).unwrap()
}

#[test]
fn a_panic_ends_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let session = start(&folder.path().join("first"));
    assert_eq!(guarded(|| 5), Some(5));
    let caught = guarded(|| {
        let recording = session.record(LostKind::Other);
        assert!(recording.is_none(), "this is what is caught");
    });
    assert_eq!(caught, None);
    assert!(session.record(LostKind::Other).is_none());
    assert_eq!(guarded(|| 5), None);
    let outcome = session.finish(None);
    assert!(outcome.path.is_some_and(|path| path.exists()));
    assert_eq!(outcome.notes.len(), 1);

    // A later session is not affected.
    let session = start(&folder.path().join("second"));
    assert_eq!(
        guarded(|| session.record(LostKind::Other).is_some()),
        Some(true)
    );
    assert_eq!(session.finish(None).notes, [""; 0]);
}
