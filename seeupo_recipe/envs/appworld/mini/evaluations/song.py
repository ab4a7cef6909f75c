def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    user = models.end.spotify.User.find_one(email=main_user.email)
    added, updated, removed = models.changed_records("spotify.SongLike")
    with test("assert the song is liked."):
        test.case([(user.id, private_data.id)], "all in", [(like.user_id, like.song_id) for like in added])
    with test("assert the task is marked complete and nothing else has changed."):
        test.case(models.end.supervisor.Task.first().status, "==", "success")
        test.case(models.changed_model_names(), "==", {"spotify.SongLike", "spotify.Song"})
        test.case([(like.user_id, like.song_id) for like in added], "==", [(user.id, private_data.id)])
        test.case(len(updated) + len(removed), "==", 0)
        added, updated, removed = models.changed_records("spotify.Song")
        test.case([song.id for song in updated], "==", [private_data.id])
        test.case(models.changed_field_names("spotify.Song", private_data.id), "==", {"like_count"})
        test.case(len(added) + len(removed), "==", 0)
