def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    with test("assert the alarm is off."):
        test.case(models.end.phone.Alarm.by_id(private_data.id).enabled, "==", False)
    with test("assert the task is marked complete and nothing else has changed."):
        test.case(models.end.supervisor.Task.first().status, "==", "success")
        test.case(models.changed_model_names(), "==", {"phone.Alarm"})
        added, updated, removed = models.changed_records("phone.Alarm")
        test.case([alarm.id for alarm in updated], "==", [private_data.id])
        test.case(models.changed_field_names("phone.Alarm", private_data.id), "==", {"enabled"})
        test.case(len(added) + len(removed), "==", 0)
