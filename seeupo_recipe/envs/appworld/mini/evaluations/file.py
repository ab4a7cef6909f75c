def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    added, updated, removed = models.changed_records("file_system.File")
    with test("assert the file is deleted."):
        test.case(private_data.id, "in", [file.id for file in removed])
    with test("assert the task is marked complete and nothing else has changed."):
        test.case(models.end.supervisor.Task.first().status, "==", "success")
        test.case([file.id for file in removed], "==", [private_data.id])
        test.case(len(added) + len(updated), "==", 0)
        test.case(models.changed_model_names(), "==", {"file_system.File"})
