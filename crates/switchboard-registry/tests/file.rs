//! The watched file, in the suite of all registries: members join and leave by editing it.
#![allow(clippy::unwrap_used)]

mod suite;

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};
use suite::{Folder, Members, Rig};
use switchboard::{
    Code,
    discover::{File, Instance, Options, Registry},
};

struct Edited {
    folder: Folder,
    listed: BTreeMap<(String, String), Instance>,
    members: Members,
}

impl Edited {
    fn new() -> Edited {
        let edited = Edited { folder: Folder::new(), listed: BTreeMap::new(), members: Members::new() };
        edited.write();
        edited
    }

    fn path(&self) -> PathBuf {
        self.folder.0.join("instances.json")
    }

    fn write(&self) {
        let instances: Vec<_> =
            self.listed.values().map(|instance| instance.encode(10_000).unwrap()).collect();
        let instances: Vec<_> = instances.iter().map(|json| str::from_utf8(json).unwrap()).collect();
        self.write_text(&format!("{{\"instances\":[{}]}}", instances.join(",")));
    }

    fn write_text(&self, text: &str) {
        let new = self.path().with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, self.path()).unwrap();
    }
}

impl Rig for Edited {
    fn connect(&self, options: Options) -> Arc<dyn Registry> {
        Arc::new(File::new(self.path(), options))
    }

    async fn stop(&mut self) {
        fs::remove_file(self.path()).unwrap();
    }

    async fn start(&mut self) {
        self.write();
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn join(&mut self, instance: Instance) {
        self.listed.insert((instance.service.clone(), instance.id.clone()), instance);
        self.write();
    }

    async fn leave(&mut self, service: &str, id: &str) {
        self.listed.remove(&(service.to_owned(), id.to_owned()));
        self.write();
    }

    async fn crash(&mut self, service: &str, id: &str) {
        self.leave(service, id).await;
    }

    async fn change(&mut self, instance: Instance) {
        self.join(instance).await;
    }

    fn members(&mut self) -> &mut Members {
        &mut self.members
    }
}

#[tokio::test]
async fn suite() {
    suite::run(&mut Edited::new()).await;
}

#[tokio::test]
async fn a_broken_file_keeps_the_old_set() {
    let mut file = Edited::new();
    file.join(suite::instance("a", 1)).await;
    let mut watch = file.connect(suite::options()).watch("a");
    assert_eq!(suite::ids(&watch), "1", "a file that is there is read at once");
    file.write_text("{\"instances\":[{\"serv");
    suite::until_is(&mut watch, |watch| watch.state().error.is_some()).await;
    assert!(watch.state().error.unwrap().message().contains("instances.json"));
    assert_eq!(suite::ids(&watch), "1");
    file.join(suite::instance("a", 2)).await;
    suite::until(&mut watch, "1 2").await;
    assert!(watch.state().error.is_none());
}

#[tokio::test]
async fn a_file_takes_no_registrations() {
    let refused =
        Edited::new().connect(suite::options()).register(suite::instance("a", 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}
