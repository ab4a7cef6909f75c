def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    with test("assert the answer is right, the task is marked complete, and nothing has changed."):
        task = models.end.supervisor.Task.first()
        test.answer(task.answer, ground_truth_answer)
        test.case(task.status, "==", "success")
        test.case(models.changed_model_names(), "==", set())
