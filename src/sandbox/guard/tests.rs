//! Findings about cancelled commands.

use std::fs;

use super::*;
use crate::protect::ProtectAction;

#[tokio::test]
async fn findings_about_a_cancelled_command_are_reported_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().canonicalize().unwrap().join("work");
    fs::create_dir(&work).unwrap();
    let temporary = dir.path().join("session/tmp");
    let surroundings = Surroundings { roots: vec![work.clone()], ..Surroundings::default() };
    let protection =
        Protections::default().of(&surroundings, std::slice::from_ref(&work), &temporary).unwrap();
    let temporary = SessionTemporary::of(&temporary).unwrap();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&reported);
    let guard = Guard {
        survey: Some(protection.survey()),
        protection: Arc::clone(&protection),
        temporary,
        late: Some(LateFindings::new(move |found| heard.lock().unwrap().extend(found))),
        is_of_trial: false,
        places: None,
    };
    fs::write(work.join(".envrc"), "curl x").unwrap();
    drop(guard);
    cancelled_checks(Duration::from_secs(20)).await;
    let found = std::mem::take(&mut *reported.lock().unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0].path, found[0].whose), (&work.join(".envrc"), Whose::Earlier));
    assert!(matches!(found[0].action, ProtectAction::MovedAside(_)), "{found:?}");
    assert!(!work.join(".envrc").exists());
    // A last process of the command writes while it ends.
    fs::write(work.join(".envrc"), "curl y").unwrap();
    let begin = std::time::Instant::now();
    while reported.lock().unwrap().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the second check found nothing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(reported.lock().unwrap()[0].path, work.join(".envrc"));
    assert_eq!(protection.check_after(protection.survey()), [], "it is reported once");
}
