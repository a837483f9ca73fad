//! A list of hot posts.

use super::proto::demo::{Post, Posts, QueryReply, QueryRequestView};
use switchboard::{Cx, Result};

/// The demo's posts, the hottest first.
#[derive(Debug)]
pub(crate) struct HotPosts;

/// Posts of a query without a limit.
const LIMIT: usize = 10;

/// Title, path, author, tags, seconds since 1970.
const POSTS: [(&str, &str, &str, &[&str], i64); 6] = [
    ("One port for every caller", "one-port", "ada", &["rpc", "design"], 1_790_000_000),
    ("Why the write comes last", "write-last", "grace", &["speed", "design"], 1_789_900_000),
    ("A deadline is a budget", "deadlines", "edsger", &["rpc", "reliability"], 1_789_800_000),
    ("Ten thousand idle connections", "idle", "barbara", &["speed", "memory"], 1_789_700_000),
    ("Drains that end", "drains", "ada", &["reliability"], 1_789_600_000),
    ("Errors that say what to do", "errors", "grace", &["design"], 1_789_500_000),
];

/// Returns all posts, the hottest first.
pub(crate) fn all() -> impl Iterator<Item = Post> {
    POSTS.iter().map(|(title, path, author, tags, time)| Post {
        title: (*title).to_owned(),
        url: format!("https://posts.example/{path}"),
        author: (*author).to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        time: *time,
        ..Default::default()
    })
}

impl Posts for HotPosts {
    async fn query(&self, request: QueryRequestView<'_>, _: &Cx) -> Result<QueryReply> {
        let limit = if request.limit == 0 { LIMIT } else { request.limit as usize };
        let wanted = |post: &Post| request.tag.is_empty() || post.tags.iter().any(|tag| tag == request.tag);
        Ok(QueryReply { posts: all().filter(wanted).take(limit).collect(), ..Default::default() })
    }
}
