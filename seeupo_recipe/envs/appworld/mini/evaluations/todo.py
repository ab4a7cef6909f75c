def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    with test("assert the task has high priority."):
        test.case(models.end.todoist.Task.by_id(private_data.id).priority, "==", "high")
    with test("assert the task is marked complete and nothing else has changed."):
        test.case(models.end.supervisor.Task.first().status, "==", "success")
        test.case(models.changed_model_names(), "==", {"todoist.Task"})
        added, updated, removed = models.changed_records("todoist.Task")
        test.case([task.id for task in updated], "==", [private_data.id])
        test.case(models.changed_field_names("todoist.Task", private_data.id), "==", {"priority"})
        test.case(len(added) + len(removed), "==", 0)
